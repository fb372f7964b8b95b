-- Text that is indexed is compared by its bytes: in that order SQLite and Python sort too, a prefix is a range
-- of the index, and an update of the operating system's collations cannot damage it.
-- A step rewrites its run's row; the free space on each page lets it do so without touching an index.
CREATE TABLE run (
    id TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    display_id TEXT COLLATE "C" NOT NULL,
    pipeline TEXT NOT NULL,
    pipeline_hash TEXT NOT NULL,
    path TEXT,
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('queued', 'running', 'waiting', 'paused', 'interrupted', 'failed', 'completed', 'cancelled')),
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    recoverable BIGINT NOT NULL CHECK (recoverable IN (0, 1)),
    next_node TEXT,
    steps_finished BIGINT NOT NULL CHECK (steps_finished >= 0),
    token BIGINT NOT NULL CHECK (token >= 0),
    owner TEXT COLLATE "C" CHECK ((owner IS NOT NULL) = (status = 'running')),
    lease_until_us BIGINT,
    wake_at_us BIGINT,
    exclusive_key TEXT COLLATE "C",
    on_owner_loss TEXT NOT NULL CHECK (on_owner_loss IN ('interrupt', 'requeue')),
    parent TEXT COLLATE "C" REFERENCES run (id),
    parent_seq BIGINT CHECK ((parent_seq IS NULL) = (parent IS NULL)),
    parent_hash BYTEA CHECK ((parent_hash IS NULL) = (parent IS NULL)),
    created_at_us BIGINT NOT NULL,
    updated_at_us BIGINT NOT NULL,
    ended_at_us BIGINT,
    head BIGINT NOT NULL CHECK (head >= 1),
    hash BYTEA NOT NULL CHECK (length(hash) = 32)
) WITH (fillfactor = 70);

CREATE INDEX run_by_display_id ON run (display_id);
CREATE INDEX run_by_creation ON run (created_at_us);  -- with the id in it, an empty table would be searched for an id here
CREATE INDEX run_by_status ON run (status, created_at_us);
CREATE INDEX run_due ON run (wake_at_us, id) WHERE wake_at_us IS NOT NULL;
CREATE INDEX run_held ON run (owner) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX run_exclusive ON run (exclusive_key) WHERE exclusive_key IS NOT NULL AND owner IS NOT NULL;

CREATE TABLE event (
    run_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL CHECK (seq >= 1),
    kind TEXT NOT NULL,
    v BIGINT NOT NULL CHECK (v >= 1),
    at_us BIGINT NOT NULL,
    token BIGINT NOT NULL CHECK (token >= 0),
    body TEXT NOT NULL,
    hash BYTEA NOT NULL CHECK (length(hash) = 32),
    refs TEXT,
    PRIMARY KEY (run_id, seq)
);

CREATE FUNCTION event_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are never changed';
END
$$;

CREATE TRIGGER event_is_immutable BEFORE UPDATE ON event
FOR EACH ROW EXECUTE FUNCTION event_is_immutable();

-- Events go only together with their run.
CREATE FUNCTION event_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM run WHERE TG_OP = 'TRUNCATE' OR id = OLD.run_id) THEN
        RAISE EXCEPTION 'events are never deleted while their run exists';
    END IF;
    RETURN OLD;
END
$$;

CREATE TRIGGER event_is_kept BEFORE DELETE ON event
FOR EACH ROW EXECUTE FUNCTION event_is_kept();

CREATE TRIGGER events_are_kept BEFORE TRUNCATE ON event
FOR EACH STATEMENT EXECUTE FUNCTION event_is_kept();

CREATE TABLE append (
    run_id TEXT COLLATE "C" NOT NULL,
    append_id TEXT COLLATE "C" NOT NULL,
    last_seq BIGINT NOT NULL,
    PRIMARY KEY (run_id, append_id)
);

CREATE TABLE snapshot (
    run_id TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    seq BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    fold_version BIGINT NOT NULL,
    body BYTEA NOT NULL
);

CREATE TABLE blob (
    hash TEXT COLLATE "C" PRIMARY KEY NOT NULL CHECK (length(hash) = 64),
    encoding TEXT NOT NULL CHECK (encoding IN ('plain', 'zstd')),
    content BYTEA NOT NULL,
    touched_at_us BIGINT NOT NULL
);
