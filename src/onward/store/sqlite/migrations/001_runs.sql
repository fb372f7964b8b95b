CREATE TABLE run (
    id TEXT PRIMARY KEY NOT NULL,
    display_id TEXT NOT NULL,
    pipeline TEXT NOT NULL,
    pipeline_hash TEXT NOT NULL,
    path TEXT,
    status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'waiting', 'paused', 'interrupted', 'failed', 'completed', 'cancelled')),
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    recoverable INTEGER NOT NULL CHECK (recoverable IN (0, 1)),
    next_node TEXT,
    steps_finished INTEGER NOT NULL CHECK (steps_finished >= 0),
    token INTEGER NOT NULL CHECK (token >= 0),
    owner TEXT CHECK ((owner IS NOT NULL) = (status = 'running')),
    lease_until_us INTEGER,
    wake_at_us INTEGER,
    exclusive_key TEXT,
    on_owner_loss TEXT NOT NULL CHECK (on_owner_loss IN ('interrupt', 'requeue')),
    parent TEXT REFERENCES run (id),
    parent_seq INTEGER CHECK ((parent_seq IS NULL) = (parent IS NULL)),
    parent_hash BLOB CHECK ((parent_hash IS NULL) = (parent IS NULL)),
    created_at_us INTEGER NOT NULL,
    updated_at_us INTEGER NOT NULL,
    ended_at_us INTEGER,
    head INTEGER NOT NULL CHECK (head >= 1),
    hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;

CREATE INDEX run_by_display_id ON run (display_id);
CREATE INDEX run_by_creation ON run (created_at_us, id);
CREATE INDEX run_by_status ON run (status, created_at_us);
CREATE INDEX run_due ON run (wake_at_us, id) WHERE wake_at_us IS NOT NULL;
CREATE INDEX run_held ON run (owner) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX run_exclusive ON run (exclusive_key) WHERE exclusive_key IS NOT NULL AND owner IS NOT NULL;

CREATE TABLE event (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL CHECK (seq >= 1),
    kind TEXT NOT NULL,
    v INTEGER NOT NULL CHECK (v >= 1),
    at_us INTEGER NOT NULL,
    token INTEGER NOT NULL CHECK (token >= 0),
    body TEXT NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    refs TEXT,
    PRIMARY KEY (run_id, seq)
) STRICT;

CREATE TRIGGER event_is_immutable BEFORE UPDATE ON event
BEGIN
    SELECT RAISE(ABORT, 'events are never changed');
END;

-- Events go only together with their run.
CREATE TRIGGER event_is_kept BEFORE DELETE ON event
WHEN EXISTS (SELECT 1 FROM run WHERE id = OLD.run_id)
BEGIN
    SELECT RAISE(ABORT, 'events are never deleted while their run exists');
END;

CREATE TABLE append (
    run_id TEXT NOT NULL,
    append_id TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (run_id, append_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE snapshot (
    run_id TEXT PRIMARY KEY NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    fold_version INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE blob (
    hash TEXT PRIMARY KEY NOT NULL CHECK (length(hash) = 64),
    encoding TEXT NOT NULL CHECK (encoding IN ('plain', 'zstd')),
    content BLOB NOT NULL,
    touched_at_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
