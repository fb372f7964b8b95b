-- Needs no holders: an older one would not note which of its steps must not be repeated.
-- What lists and inboxes need of a run without its log: a step in doubt, and where the run comes from.
ALTER TABLE run ADD COLUMN doubtful TEXT;
ALTER TABLE run ADD COLUMN managed_by TEXT;
ALTER TABLE run ADD COLUMN managed_step TEXT;
ALTER TABLE run ADD COLUMN restart_of TEXT;
ALTER TABLE run ADD COLUMN restarted_as TEXT;
UPDATE run
SET managed_by = json_extract(first.body, '$.managed_by.run'), managed_step = json_extract(first.body, '$.managed_by.step'),
    restart_of = json_extract(first.body, '$.restart_of')
FROM event AS first
WHERE first.run_id = run.id AND first.seq = 1 AND json_valid(first.body);
UPDATE run
SET restarted_as = detail
WHERE reason = 'restarted_as';

CREATE INDEX run_by_manager ON run (managed_by) WHERE managed_by IS NOT NULL;
CREATE INDEX run_by_pipeline ON run (pipeline, created_at_us);
CREATE INDEX run_by_status_and_pipeline ON run (status, pipeline, created_at_us);
-- In the order of a list, and with all that is counted.
DROP INDEX run_by_reason;
CREATE INDEX run_by_reason ON run (reason, created_at_us, status, recoverable) WHERE reason <> '';

-- A question and what became of it, so that an inbox reads no logs. The id of a gate names every branch that it is
-- in, so it may be too long for an index; its BLAKE3 is not.
CREATE TABLE gate (
    run_id TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    gate TEXT NOT NULL,
    gate_hash TEXT NOT NULL,
    pipeline TEXT NOT NULL,
    node TEXT NOT NULL,
    text TEXT NOT NULL,
    about TEXT NOT NULL,
    type TEXT NOT NULL,
    choices TEXT NOT NULL,
    opened_at_us INTEGER NOT NULL,
    deadline_us INTEGER,
    decided_by TEXT CHECK (decided_by IS NULL OR closed_at_us IS NOT NULL),
    closed_at_us INTEGER,
    PRIMARY KEY (run_id, gate_hash)
) STRICT;
CREATE INDEX gate_open ON gate (opened_at_us, run_id) WHERE closed_at_us IS NULL;

-- Runs whose gates and whose step in doubt are still to be read from their logs, which a process does when it next
-- opens this database. A run that is final has none.
CREATE TABLE backfill (
    run_id TEXT PRIMARY KEY NOT NULL REFERENCES run (id) ON DELETE CASCADE
) STRICT;
INSERT INTO backfill (run_id)
SELECT id
FROM run
WHERE status NOT IN ('completed', 'cancelled');
