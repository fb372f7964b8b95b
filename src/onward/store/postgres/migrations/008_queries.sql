-- Needs no holders: an older one would not note which of its steps must not be repeated.
-- What lists and inboxes need of a run without its log: a step in doubt, and where the run comes from.
ALTER TABLE run
    ADD COLUMN doubtful TEXT,
    ADD COLUMN managed_by TEXT COLLATE "C",
    ADD COLUMN managed_step TEXT,
    ADD COLUMN restart_of TEXT COLLATE "C",
    ADD COLUMN restarted_as TEXT COLLATE "C";
-- A body that was damaged names no relatives; a NUL in a text, which JSON may write, is no trouble here.
CREATE FUNCTION pg_temp.first_event(body TEXT) RETURNS JSON LANGUAGE plpgsql AS $$
BEGIN
    RETURN replace(body, '\u0000', '\u0020')::json;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;
UPDATE run
SET managed_by = first.body -> 'managed_by' ->> 'run', managed_step = first.body -> 'managed_by' ->> 'step',
    restart_of = first.body ->> 'restart_of'
FROM (
    SELECT run_id, pg_temp.first_event(body) AS body
    FROM event
    WHERE seq = 1 AND (body LIKE '%"managed_by"%' OR body LIKE '%"restart_of"%')
) AS first
WHERE first.run_id = run.id;
DROP FUNCTION pg_temp.first_event(TEXT);
UPDATE run
SET restarted_as = detail
WHERE reason = 'restarted_as';

-- An entry of a B-tree has at most 2,704 bytes, and names in old and imported logs may be longer.
CREATE INDEX run_by_manager ON run USING hash (managed_by);
CREATE INDEX run_by_pipeline ON run (left(pipeline, 200), created_at_us);
-- A run that is well costs nothing here: few are running at a time, and most of a pipeline have completed, so these
-- are found by another index. This one and all lists are planned with the status that is asked for.
CREATE INDEX run_by_status_and_pipeline ON run (status, left(pipeline, 200), created_at_us)
WHERE status <> 'completed' AND status <> 'running';
-- In the order of a list, and with all that is counted.
DROP INDEX run_by_reason;
CREATE INDEX run_by_reason ON run (reason, created_at_us, status, recoverable) WHERE reason <> '';

-- A question and what became of it, so that an inbox reads no logs. The id of a gate names every branch that it is
-- in, so it may be too long for an index; its BLAKE3 is not.
CREATE TABLE gate (
    run_id TEXT COLLATE "C" NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    gate TEXT COLLATE "C" NOT NULL,
    gate_hash TEXT COLLATE "C" NOT NULL,
    pipeline TEXT COLLATE "C" NOT NULL,
    node TEXT NOT NULL,
    text TEXT NOT NULL,
    about TEXT NOT NULL,
    type TEXT NOT NULL,
    choices TEXT NOT NULL,
    opened_at_us BIGINT NOT NULL,
    deadline_us BIGINT,
    decided_by TEXT CHECK (decided_by IS NULL OR closed_at_us IS NOT NULL),
    closed_at_us BIGINT,
    PRIMARY KEY (run_id, gate_hash)
);
CREATE INDEX gate_open ON gate (opened_at_us, run_id) WHERE closed_at_us IS NULL;

-- Runs whose gates and whose step in doubt are still to be read from their logs, which a process does when it next
-- opens this database. A run that is final has none.
CREATE TABLE backfill (
    run_id TEXT COLLATE "C" PRIMARY KEY NOT NULL REFERENCES run (id) ON DELETE CASCADE
);
INSERT INTO backfill (run_id)
SELECT id
FROM run
WHERE status NOT IN ('completed', 'cancelled');
