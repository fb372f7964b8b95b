-- What a column may hold is said by a domain where it concerns that column alone: PostgreSQL looks at a domain
-- when the column is written, and at every CHECK of a table whatever is written, which would cost a step a tenth
-- of its time.
CREATE DOMAIN ordinal AS BIGINT CHECK (VALUE >= 1);
CREATE DOMAIN tally AS BIGINT CHECK (VALUE >= 0);
CREATE DOMAIN flag AS BIGINT CHECK (VALUE IN (0, 1));
CREATE DOMAIN digest AS BYTEA CHECK (length(VALUE) = 32);
CREATE DOMAIN run_status AS TEXT COLLATE "C" CHECK (VALUE IN ('queued', 'running', 'waiting', 'paused', 'interrupted', 'failed', 'completed', 'cancelled'));
CREATE DOMAIN owner_loss AS TEXT CHECK (VALUE IN ('interrupt', 'requeue'));

-- Text that is indexed is compared by its bytes: in that order SQLite and Python sort too, a prefix is a range
-- of the index, and an update of the operating system's collations cannot damage it.
-- A step rewrites its run's row; the free space on each page lets it do so without touching an index.
CREATE TABLE run (
    id TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    display_id TEXT COLLATE "C" NOT NULL,
    pipeline TEXT NOT NULL,
    pipeline_hash TEXT NOT NULL,
    path TEXT,
    status run_status NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    recoverable flag NOT NULL,
    next_node TEXT,
    steps_finished tally NOT NULL,
    token tally NOT NULL,
    owner TEXT COLLATE "C" CHECK ((owner IS NOT NULL) = (status = 'running')),
    lease_until_us BIGINT,
    wake_at_us BIGINT,
    exclusive_key TEXT COLLATE "C",
    on_owner_loss owner_loss NOT NULL,
    parent TEXT COLLATE "C" REFERENCES run (id),
    parent_seq BIGINT,
    parent_hash BYTEA,
    created_at_us BIGINT NOT NULL,
    updated_at_us BIGINT NOT NULL,
    ended_at_us BIGINT,
    head ordinal NOT NULL,
    hash digest NOT NULL,
    CHECK (num_nonnulls(parent, parent_seq, parent_hash) IN (0, 3))
) WITH (fillfactor = 70);

CREATE INDEX run_by_display_id ON run (display_id);
-- Without the id: a plan made while the table is empty would look for ids here.
CREATE INDEX run_by_creation ON run (created_at_us);
CREATE INDEX run_by_status ON run (status, created_at_us);
CREATE INDEX run_due ON run (wake_at_us, id) WHERE wake_at_us IS NOT NULL;
CREATE INDEX run_held ON run (owner) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX run_exclusive ON run (exclusive_key) WHERE exclusive_key IS NOT NULL AND owner IS NOT NULL;

CREATE TABLE event (
    run_id TEXT COLLATE "C" NOT NULL,
    seq ordinal NOT NULL,
    kind TEXT NOT NULL,
    v ordinal NOT NULL,
    at_us BIGINT NOT NULL,
    token tally NOT NULL,
    body TEXT NOT NULL,
    hash digest NOT NULL,
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
