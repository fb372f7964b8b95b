-- Needs no holders: an older one would not number the changes that it makes.
-- The number of the change that a run was written with last: its creation, another status, a gate that opened or closed, and
-- never a step in passing, which would have to write every index of the run. It is the number of the transaction: one that is
-- below the oldest that is still open can be read, and nothing will ever appear below it.
ALTER TABLE run ADD COLUMN changed BIGINT NOT NULL DEFAULT 0;
CREATE INDEX run_by_change ON run (changed);

-- Who may ask a server: tokens, the sessions that were opened with them, and codes that open one session each. Of a secret
-- only its hash is here. `token` is the one that a session or a code belongs to; it ends with that.
CREATE TABLE principal (
    id TEXT COLLATE "C" PRIMARY KEY NOT NULL CHECK (id <> ''),
    kind TEXT NOT NULL CHECK (kind IN ('token', 'session', 'code')),
    name TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    secret_hash BYTEA NOT NULL CHECK (length(secret_hash) = 32),
    roles TEXT NOT NULL,
    made_at_us BIGINT NOT NULL,
    expires_at_us BIGINT,
    used_at_us BIGINT,
    revoked_at_us BIGINT,
    token TEXT COLLATE "C" CHECK (token IS NULL OR kind <> 'token')
);
CREATE UNIQUE INDEX principal_named ON principal (name) WHERE kind = 'token' AND revoked_at_us IS NULL;
CREATE INDEX principal_of_token ON principal (token) WHERE token IS NOT NULL;

-- What was asked of a server, one row for each change, written before it is made. `code` is the HTTP status of the reply; a row
-- without one is an attempt that nobody saw the end of.
CREATE TABLE audit (
    n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_us BIGINT NOT NULL,
    asked_by TEXT NOT NULL,
    principal TEXT NOT NULL,
    address TEXT NOT NULL,
    operation TEXT NOT NULL,
    subject TEXT NOT NULL,
    key TEXT,
    on_behalf_of TEXT,
    code BIGINT,
    done_at_us BIGINT CHECK ((done_at_us IS NULL) = (code IS NULL))
);
