-- Which runs a chat has, and which of them a person does not want to be offered any more. The prefix of a fork is its
-- parent's, so it is in the chat of the run that it comes from.
ALTER TABLE run ADD COLUMN chat TEXT;
ALTER TABLE run ADD COLUMN is_dismissed INTEGER NOT NULL DEFAULT 0 CHECK (is_dismissed IN (0, 1));
WITH RECURSIVE given (id, chat) AS (
    SELECT first.run_id, json_extract(first.body, '$.chat')
    FROM event AS first
    WHERE first.seq = 1 AND first.kind = 'RunCreated' AND json_valid(first.body) AND json_extract(first.body, '$.chat') IS NOT NULL
    UNION ALL
    SELECT run.id, given.chat
    FROM given
    JOIN run ON run.parent = given.id
)
UPDATE run
SET chat = given.chat
FROM given
WHERE given.id = run.id;
CREATE INDEX run_by_chat ON run (chat, created_at_us, id) WHERE chat IS NOT NULL;

-- Onward itself says things in a chat, too; and a message says when it last grew.
ALTER TABLE message RENAME TO message_before;
CREATE TABLE message (
    n INTEGER PRIMARY KEY NOT NULL,
    id TEXT NOT NULL UNIQUE CHECK (id <> ''),
    chat INTEGER NOT NULL REFERENCES chat (n),
    run_id TEXT NOT NULL,
    step TEXT NOT NULL,
    call TEXT NOT NULL,
    try INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'system')),
    state TEXT NOT NULL CHECK (state IN ('streaming', 'complete', 'error', 'interrupted')),
    token INTEGER NOT NULL,
    next_index INTEGER NOT NULL CHECK (next_index > 0),
    first_position INTEGER NOT NULL,
    last_position INTEGER CHECK ((last_position IS NOT NULL) = (state <> 'streaming')),
    model TEXT NOT NULL,
    content TEXT CHECK (content IS NULL OR state <> 'streaming'),
    begun_at_us INTEGER NOT NULL,
    ended_at_us INTEGER CHECK ((ended_at_us IS NOT NULL) = (state <> 'streaming')),
    is_tidied INTEGER NOT NULL DEFAULT 0 CHECK (is_tidied IN (0, 1)),
    changed_at_us INTEGER NOT NULL,
    CHECK (is_tidied = 0 OR content IS NOT NULL)
) STRICT;
INSERT INTO message
SELECT *, coalesce(ended_at_us, begun_at_us)
FROM message_before;
DROP TABLE message_before;
CREATE INDEX message_by_chat ON message (chat, first_position);
CREATE INDEX message_by_run ON message (run_id, begun_at_us);
CREATE INDEX message_streaming ON message (run_id) WHERE state = 'streaming';
CREATE INDEX message_unsealed ON message (n) WHERE state <> 'streaming' AND content IS NULL;
CREATE INDEX message_untidied ON message (ended_at_us) WHERE content IS NOT NULL AND is_tidied = 0;
CREATE INDEX message_tidied ON message (chat, last_position) WHERE is_tidied = 1;
CREATE INDEX message_with_content ON message (content) WHERE content IS NOT NULL;

-- How many runs the messages of a chat have started. Whoever starts one names the number that it saw: of two that
-- looked at the same time, one has to look again.
ALTER TABLE chat ADD COLUMN turn INTEGER NOT NULL DEFAULT 0 CHECK (turn >= 0);

-- What a user's message asks for, and what became of it, one row for each, in the order of `n`. `body_hash` is that of the
-- request; `behind` the run that it waits for. `starting`: it has the id of its run, which may not be created yet.
CREATE TABLE intake (
    n INTEGER PRIMARY KEY NOT NULL,
    message TEXT NOT NULL UNIQUE,
    chat TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    said_by TEXT NOT NULL,
    wish TEXT NOT NULL CHECK (wish IN ('', 'fresh', 'resume')),
    project TEXT NOT NULL,
    pipeline TEXT NOT NULL,
    workdir TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'starting', 'done')),
    behind TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK ((outcome <> '') = (state = 'done')),
    run_id TEXT NOT NULL CHECK (state <> 'starting' OR run_id <> ''),
    reading TEXT NOT NULL,
    notice TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    done_at_us INTEGER CHECK ((done_at_us IS NOT NULL) = (state = 'done'))
) STRICT;
CREATE INDEX intake_open ON intake (chat, n) WHERE state <> 'done';
CREATE INDEX intake_by_chat ON intake (chat, n);

-- What the messages of a chat may spend, unless another limit is set for chats.
INSERT INTO scope (id, kind, max_tokens)
VALUES ('chat', 'chat', 500000)
ON CONFLICT (id) DO NOTHING;
