-- Which database this is, for files beside it that name it. Runs that are here already, made up to this time, may
-- have directories that name none.
CREATE TABLE identity (
    one INTEGER PRIMARY KEY NOT NULL CHECK (one = 1),
    name TEXT NOT NULL CHECK (name <> ''),
    unmarked_until_us INTEGER NOT NULL
) STRICT;
INSERT INTO identity (one, name, unmarked_until_us)
SELECT 1, lower(hex(randomblob(16))), coalesce(max(created_at_us), 0)
FROM run;
