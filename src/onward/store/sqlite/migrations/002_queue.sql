-- What workers choose by: who goes first, which handlers a run needs, how many of a pipeline may run at once.
ALTER TABLE run ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN needs TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN max_running INTEGER;

DROP INDEX run_due;
CREATE INDEX run_due ON run (priority DESC, wake_at_us, id) WHERE wake_at_us IS NOT NULL;
DROP INDEX run_held;
CREATE INDEX run_held ON run (pipeline) WHERE owner IS NOT NULL;

-- In PostgreSQL claims of one pipeline wait for each other here; in SQLite all writers do anyway.
CREATE TABLE ceiling (
    pipeline TEXT PRIMARY KEY NOT NULL
) STRICT;
