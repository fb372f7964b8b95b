-- A process that takes runs from the queue, with what it serves: the names of its handlers, and the directories that
-- runs needed and it did not have, both as JSON. Its row lasts as long as it is renewed.
CREATE TABLE worker (
    owner TEXT COLLATE "C" PRIMARY KEY NOT NULL CHECK (owner <> ''),
    handlers TEXT NOT NULL,
    lacks TEXT NOT NULL,
    concurrency BIGINT NOT NULL CHECK (concurrency >= 1),
    started_at_us BIGINT NOT NULL,
    lease_until_us BIGINT NOT NULL
);
