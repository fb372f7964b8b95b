-- Needs no holders: an older one would not number the changes that it makes.
-- The number of the change that a run was written with last: its creation, another status, a gate that opened or closed, and
-- never a step in passing. The count is kept apart, so that no number comes twice, also if the newest run is deleted.
ALTER TABLE run ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX run_by_change ON run (changed);
CREATE TABLE change (
    number INTEGER NOT NULL
) STRICT;
INSERT INTO change (number)
VALUES (0);

-- Who may ask a server: tokens, the sessions that were opened with them, and codes that open one session each. Of a secret
-- only its hash is here. `token` is the one that a session or a code belongs to; it ends with that.
CREATE TABLE principal (
    id TEXT PRIMARY KEY NOT NULL CHECK (id <> ''),
    kind TEXT NOT NULL CHECK (kind IN ('token', 'session', 'code')),
    name TEXT NOT NULL CHECK (name <> ''),
    secret_hash BLOB NOT NULL CHECK (length(secret_hash) = 32),
    roles TEXT NOT NULL,
    made_at_us INTEGER NOT NULL,
    expires_at_us INTEGER,
    used_at_us INTEGER,
    revoked_at_us INTEGER,
    token TEXT CHECK (token IS NULL OR kind <> 'token')
) STRICT;
CREATE UNIQUE INDEX principal_named ON principal (name) WHERE kind = 'token' AND revoked_at_us IS NULL;
CREATE INDEX principal_of_token ON principal (token) WHERE token IS NOT NULL;

-- What was asked of a server, one row for each change, written before it is made. `code` is the HTTP status of the reply; a row
-- without one is an attempt that nobody saw the end of.
CREATE TABLE audit (
    n INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    at_us INTEGER NOT NULL,
    asked_by TEXT NOT NULL,
    principal TEXT NOT NULL,
    address TEXT NOT NULL,
    operation TEXT NOT NULL,
    subject TEXT NOT NULL,
    key TEXT,
    on_behalf_of TEXT,
    code INTEGER,
    done_at_us INTEGER CHECK ((done_at_us IS NULL) = (code IS NULL))
) STRICT;
