-- What limits are set for: a chat, a project, a UTC day or a run, and as `chat`, `project`, `day` and `run` the default
-- of the kind, which counts where a scope has NULL. 0 is no limit. `warned` are the measures that a warning was given of.
CREATE TABLE scope (
    id TEXT PRIMARY KEY NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('chat', 'day', 'project', 'run')),
    max_tokens INTEGER CHECK (max_tokens >= 0),
    max_cost_micro INTEGER CHECK (max_cost_micro >= 0),
    max_calls INTEGER CHECK (max_calls >= 0),
    spent_tokens INTEGER NOT NULL DEFAULT 0 CHECK (spent_tokens >= 0),
    spent_cost_micro INTEGER NOT NULL DEFAULT 0 CHECK (spent_cost_micro >= 0),
    spent_calls INTEGER NOT NULL DEFAULT 0 CHECK (spent_calls >= 0),
    reserved_tokens INTEGER NOT NULL DEFAULT 0 CHECK (reserved_tokens >= 0),
    reserved_cost_micro INTEGER NOT NULL DEFAULT 0 CHECK (reserved_cost_micro >= 0),
    reserved_calls INTEGER NOT NULL DEFAULT 0 CHECK (reserved_calls >= 0),
    warned TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX scope_by_kind ON scope (kind, id);

-- What a call reserved in its scopes (one on each line), written with the event that begins it, and what it was charged when it
-- ended. `call_hash` is the BLAKE3 of step, call and try, which together never recur in a run.
CREATE TABLE reservation (
    run_id TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    call_hash TEXT NOT NULL,
    step TEXT NOT NULL,
    call TEXT NOT NULL,
    try INTEGER NOT NULL,
    token INTEGER NOT NULL,
    scopes TEXT NOT NULL,
    model TEXT NOT NULL,
    reserved_tokens INTEGER NOT NULL,
    reserved_cost_micro INTEGER NOT NULL,
    reserved_calls INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'settled')),
    charged_tokens INTEGER NOT NULL,
    charged_cost_micro INTEGER NOT NULL,
    charged_calls INTEGER NOT NULL,
    is_estimated INTEGER NOT NULL CHECK (is_estimated IN (0, 1)),
    PRIMARY KEY (run_id, call_hash)
) STRICT;
CREATE INDEX reservation_open ON reservation (run_id) WHERE state = 'open';

-- What calls were charged when they ended. It stays when its run is deleted. `key_hash` is the BLAKE3 of the first six.
CREATE TABLE usage (
    key_hash TEXT PRIMARY KEY NOT NULL,
    day TEXT NOT NULL,
    project TEXT NOT NULL,
    chat TEXT NOT NULL,
    run_id TEXT NOT NULL,
    pipeline TEXT NOT NULL,
    model TEXT NOT NULL,
    input INTEGER NOT NULL,
    output INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost_micro INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    estimated INTEGER NOT NULL
) STRICT;
