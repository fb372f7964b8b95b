-- The tags of a run, in order, each between two spaces; '' if it has none. A run from before has none.
ALTER TABLE run ADD COLUMN tags TEXT NOT NULL DEFAULT '';
-- In the order of a list, and with what is compared: the runs that have other tags are passed over in the index.
CREATE INDEX run_tagged ON run (created_at_us, id, tags) WHERE tags <> '';
