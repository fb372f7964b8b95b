-- Which database this is, for files elsewhere that name it. Runs that are here already, made up to this time, may
-- have directories that name none.
CREATE TABLE identity (
    one BIGINT PRIMARY KEY NOT NULL CHECK (one = 1),
    name TEXT NOT NULL CHECK (name <> ''),
    unmarked_until_us BIGINT NOT NULL
);
INSERT INTO identity (one, name, unmarked_until_us)
SELECT 1, replace(gen_random_uuid()::text, '-', ''), coalesce(max(created_at_us), 0)
FROM run;
