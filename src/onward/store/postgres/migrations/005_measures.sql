-- What operators count, without reading the table: why runs stopped, and what came to an end lately. A run that
-- is well has no reason and so no entry in the first; the second gets one when the run is over.
CREATE INDEX run_by_reason ON run (status, reason, recoverable) WHERE reason <> '';
CREATE INDEX run_ended ON run (ended_at_us, status) WHERE ended_at_us IS NOT NULL;
