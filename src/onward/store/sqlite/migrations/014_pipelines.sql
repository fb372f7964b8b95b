-- Registered pipelines. `enabled` is the version that new runs get; NULL if the name was removed. Who enabled or removed it
-- last, and when.
CREATE TABLE pipeline (
    name TEXT PRIMARY KEY NOT NULL CHECK (name <> ''),
    enabled INTEGER,
    changed_by TEXT NOT NULL,
    changed_at_us INTEGER NOT NULL
) STRICT;

-- Their versions: 1, 2, …, each of another source, and none ever changes. Those of a name that was removed stay, so that a
-- number never means another source. `hash` is the blob of the source, which is kept while the name is registered.
CREATE TABLE pipeline_version (
    name TEXT NOT NULL REFERENCES pipeline (name),
    version INTEGER NOT NULL CHECK (version > 0),
    hash TEXT NOT NULL,
    file TEXT NOT NULL,
    added_by TEXT NOT NULL,
    added_at_us INTEGER NOT NULL,
    PRIMARY KEY (name, version),
    UNIQUE (name, hash)
) STRICT;
