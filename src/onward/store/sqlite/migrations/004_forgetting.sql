-- What forgetting asks: does a fork stand on this run, and which events name content.
CREATE INDEX run_by_parent ON run (parent) WHERE parent IS NOT NULL;
-- By place and not by content: most events name none, and so cost nothing here.
CREATE INDEX event_with_content ON event (run_id, seq) WHERE refs IS NOT NULL OR kind = 'PipelineChanged';
