-- Whoever wants notifications: which kinds, each between two blanks, and until when. Nobody is told after that time.
CREATE TABLE subscriber (
    name TEXT PRIMARY KEY NOT NULL,
    kinds TEXT NOT NULL,
    wanted_until_us INTEGER NOT NULL
) STRICT;

-- What is to be told outside, one row for each subscriber, written with the events that cause it. `token` counts the
-- claims and only grows; `tries` those since somebody last asked for it.
CREATE TABLE outbox (
    id TEXT NOT NULL,
    subscriber TEXT NOT NULL,
    run_id TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at_us INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'failed')),
    token INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    due_at_us INTEGER CHECK ((due_at_us IS NOT NULL) = (state = 'waiting')),
    tried_at_us INTEGER,
    delivered_at_us INTEGER,
    response INTEGER,
    error TEXT NOT NULL,
    PRIMARY KEY (id, subscriber)
) STRICT;
CREATE INDEX outbox_open ON outbox (subscriber, state, due_at_us, created_at_us) WHERE state <> 'delivered';
CREATE INDEX outbox_by_run ON outbox (run_id);
CREATE INDEX outbox_by_age ON outbox (created_at_us);
