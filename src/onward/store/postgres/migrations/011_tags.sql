-- The tags of a run, in order, each between two spaces; '' if it has none. A run from before has none.
ALTER TABLE run ADD COLUMN tags TEXT NOT NULL DEFAULT '';
-- In the order of a list. The tags are not in it: what a B-tree holds has an end.
CREATE INDEX run_tagged ON run (created_at_us, id) WHERE tags <> '';
