-- Whoever wants notifications: which kinds, each between two blanks, and until when. Nobody is told after that time.
CREATE TABLE subscriber (
    name TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    kinds TEXT NOT NULL,
    wanted_until_us BIGINT NOT NULL
);

-- What is to be told outside, one row for each subscriber, written with the events that cause it. `token` counts the
-- claims and only grows; `tries` those since somebody last asked for it.
CREATE TABLE outbox (
    id TEXT COLLATE "C" NOT NULL,
    subscriber TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at_us BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'failed')),
    token BIGINT NOT NULL,
    tries BIGINT NOT NULL,
    due_at_us BIGINT CHECK ((due_at_us IS NOT NULL) = (state = 'waiting')),
    tried_at_us BIGINT,
    delivered_at_us BIGINT,
    response BIGINT,
    error TEXT NOT NULL,
    PRIMARY KEY (id, subscriber)
);
CREATE INDEX outbox_open ON outbox (subscriber, state, due_at_us, created_at_us) WHERE state <> 'delivered';
CREATE INDEX outbox_by_run ON outbox (run_id);
CREATE INDEX outbox_by_age ON outbox (created_at_us);
