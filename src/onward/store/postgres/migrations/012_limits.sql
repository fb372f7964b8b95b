-- What limits are set for: a chat, a project, a UTC day or a run, and as `chat`, `project`, `day` and `run` the default
-- of the kind, which counts where a scope has NULL. 0 is no limit. `warned` are the measures that a warning was given of.
CREATE TABLE scope (
    id TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('chat', 'day', 'project', 'run')),
    max_tokens BIGINT CHECK (max_tokens >= 0),
    max_cost_micro BIGINT CHECK (max_cost_micro >= 0),
    max_calls BIGINT CHECK (max_calls >= 0),
    spent_tokens BIGINT NOT NULL DEFAULT 0 CHECK (spent_tokens >= 0),
    spent_cost_micro BIGINT NOT NULL DEFAULT 0 CHECK (spent_cost_micro >= 0),
    spent_calls BIGINT NOT NULL DEFAULT 0 CHECK (spent_calls >= 0),
    reserved_tokens BIGINT NOT NULL DEFAULT 0 CHECK (reserved_tokens >= 0),
    reserved_cost_micro BIGINT NOT NULL DEFAULT 0 CHECK (reserved_cost_micro >= 0),
    reserved_calls BIGINT NOT NULL DEFAULT 0 CHECK (reserved_calls >= 0),
    warned TEXT NOT NULL DEFAULT ''
);
CREATE INDEX scope_by_kind ON scope (kind, id);

-- What a call reserved in its scopes (one on each line), written with the event that begins it, and what it was charged when it
-- ended. `call_hash` is the BLAKE3 of step, call and try, which together never recur in a run.
CREATE TABLE reservation (
    run_id TEXT COLLATE "C" NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    call_hash TEXT COLLATE "C" NOT NULL,
    step TEXT NOT NULL,
    call TEXT NOT NULL,
    try BIGINT NOT NULL,
    token BIGINT NOT NULL,
    scopes TEXT NOT NULL,
    model TEXT NOT NULL,
    reserved_tokens BIGINT NOT NULL,
    reserved_cost_micro BIGINT NOT NULL,
    reserved_calls BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'settled')),
    charged_tokens BIGINT NOT NULL,
    charged_cost_micro BIGINT NOT NULL,
    charged_calls BIGINT NOT NULL,
    is_estimated BIGINT NOT NULL CHECK (is_estimated IN (0, 1)),
    PRIMARY KEY (run_id, call_hash)
);
CREATE INDEX reservation_open ON reservation (run_id) WHERE state = 'open';

-- What calls were charged when they ended. It stays when its run is deleted. `key_hash` is the BLAKE3 of the first six.
CREATE TABLE usage (
    key_hash TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    day TEXT COLLATE "C" NOT NULL,
    project TEXT COLLATE "C" NOT NULL,
    chat TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL,
    pipeline TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    input BIGINT NOT NULL,
    output BIGINT NOT NULL,
    cached BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    cost_micro BIGINT NOT NULL,
    calls BIGINT NOT NULL,
    estimated BIGINT NOT NULL
);
