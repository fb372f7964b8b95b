-- Where messages are said. Its row counts the positions of their chunks, so that these commit in order.
CREATE TABLE chat (
    n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    project TEXT NOT NULL DEFAULT '',
    title TEXT NOT NULL DEFAULT '',
    position BIGINT NOT NULL DEFAULT 0 CHECK (position >= 0),
    created_at_us BIGINT NOT NULL
);

-- What is said in a chat, without its text. It may outlive the run that said it. Its chunks are at the positions from
-- the first to the last, which it has when it has ended; `content` is the blob of its whole text, and if it is
-- tidied, all that is left of it.
CREATE TABLE message (
    n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    chat BIGINT NOT NULL REFERENCES chat (n),
    run_id TEXT COLLATE "C" NOT NULL,
    step TEXT NOT NULL,
    call TEXT NOT NULL,
    try BIGINT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    state TEXT NOT NULL CHECK (state IN ('streaming', 'complete', 'error', 'interrupted')),
    token BIGINT NOT NULL,
    next_index BIGINT NOT NULL CHECK (next_index > 0),
    first_position BIGINT NOT NULL,
    last_position BIGINT CHECK ((last_position IS NOT NULL) = (state <> 'streaming')),
    model TEXT NOT NULL,
    content TEXT COLLATE "C" CHECK (content IS NULL OR state <> 'streaming'),
    begun_at_us BIGINT NOT NULL,
    ended_at_us BIGINT CHECK ((ended_at_us IS NOT NULL) = (state <> 'streaming')),
    is_tidied BIGINT NOT NULL DEFAULT 0 CHECK (is_tidied IN (0, 1)),
    CHECK (is_tidied = 0 OR content IS NOT NULL)
);
CREATE INDEX message_by_chat ON message (chat, first_position);
CREATE INDEX message_by_run ON message (run_id, begun_at_us);
CREATE INDEX message_streaming ON message (run_id) WHERE state = 'streaming';
CREATE INDEX message_unsealed ON message (n) WHERE state <> 'streaming' AND content IS NULL;
CREATE INDEX message_untidied ON message (ended_at_us) WHERE content IS NOT NULL AND is_tidied = 0;
CREATE INDEX message_tidied ON message (chat, last_position) WHERE is_tidied = 1;
CREATE INDEX message_with_content ON message (content) WHERE content IS NOT NULL;

-- A piece of a message. Small keys: there are many, and each is small.
CREATE TABLE chunk (
    chat BIGINT NOT NULL,
    position BIGINT NOT NULL,
    message BIGINT NOT NULL,
    "index" BIGINT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('start', 'text', 'reasoning', 'tool_call', 'tool_result', 'end')),
    text TEXT NOT NULL,
    PRIMARY KEY (chat, position)
);
