-- What was done at most once. Begun and without a result when its time is over: nobody knows whether it was done.
CREATE TABLE effect (
    key TEXT PRIMARY KEY NOT NULL CHECK (key <> ''),
    state TEXT NOT NULL CHECK (state IN ('begun', 'finished')),
    token TEXT NOT NULL,
    owner TEXT NOT NULL,
    lease_until_us INTEGER NOT NULL,
    result BLOB CHECK ((result IS NOT NULL) = (state = 'finished')),
    begun_at_us INTEGER NOT NULL,
    finished_at_us INTEGER CHECK ((finished_at_us IS NOT NULL) = (state = 'finished'))
) STRICT;
