-- Which runs a chat has, and which of them a person does not want to be offered any more. The prefix of a fork is its
-- parent's, so it is in the chat of the run that it comes from.
ALTER TABLE run
    ADD COLUMN chat TEXT COLLATE "C",
    ADD COLUMN is_dismissed BIGINT NOT NULL DEFAULT 0 CHECK (is_dismissed IN (0, 1));
-- A body that was damaged names no chat; a NUL in a text, which JSON may write, is no trouble here.
CREATE FUNCTION pg_temp.first_event(body TEXT) RETURNS JSON LANGUAGE plpgsql AS $$
BEGIN
    RETURN replace(body, '\u0000', '\u0020')::json;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;
WITH RECURSIVE given (id, chat) AS (
    SELECT first.run_id, pg_temp.first_event(first.body) ->> 'chat'
    FROM event AS first
    WHERE first.seq = 1 AND first.kind = 'RunCreated' AND first.body LIKE '%"chat"%'
    UNION ALL
    SELECT run.id, given.chat
    FROM given
    JOIN run ON run.parent = given.id
)
UPDATE run
SET chat = given.chat
FROM given
WHERE given.id = run.id AND given.chat IS NOT NULL;
DROP FUNCTION pg_temp.first_event(TEXT);
CREATE INDEX run_by_chat ON run (chat, created_at_us, id) WHERE chat IS NOT NULL;

-- Onward itself says things in a chat, too; and a message says when it last grew.
ALTER TABLE message DROP CONSTRAINT message_role_check;
ALTER TABLE message ADD CONSTRAINT message_role_check CHECK (role IN ('user', 'assistant', 'system'));
ALTER TABLE message ADD COLUMN changed_at_us BIGINT;
UPDATE message
SET changed_at_us = coalesce(ended_at_us, begun_at_us);
ALTER TABLE message ALTER COLUMN changed_at_us SET NOT NULL;

-- How many runs the messages of a chat have started. Whoever starts one names the number that it saw: of two that
-- looked at the same time, one has to look again.
ALTER TABLE chat ADD COLUMN turn BIGINT NOT NULL DEFAULT 0 CHECK (turn >= 0);

-- What a user's message asks for, and what became of it, one row for each, in the order of `n`. `body_hash` is that of the
-- request; `behind` the run that it waits for. `starting`: it has the id of its run, which may not be created yet.
CREATE TABLE intake (
    n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message TEXT COLLATE "C" NOT NULL UNIQUE,
    chat TEXT COLLATE "C" NOT NULL,
    body_hash TEXT NOT NULL,
    said_by TEXT NOT NULL,
    wish TEXT NOT NULL CHECK (wish IN ('', 'fresh', 'resume')),
    project TEXT NOT NULL,
    pipeline TEXT NOT NULL,
    workdir TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'starting', 'done')),
    behind TEXT COLLATE "C" NOT NULL,
    outcome TEXT NOT NULL CHECK ((outcome <> '') = (state = 'done')),
    run_id TEXT COLLATE "C" NOT NULL CHECK (state <> 'starting' OR run_id <> ''),
    reading TEXT NOT NULL,
    notice TEXT NOT NULL,
    at_us BIGINT NOT NULL,
    done_at_us BIGINT CHECK ((done_at_us IS NOT NULL) = (state = 'done'))
);
CREATE INDEX intake_open ON intake (chat, n) WHERE state <> 'done';
CREATE INDEX intake_by_chat ON intake (chat, n);

-- What the messages of a chat may spend, unless another limit is set for chats.
INSERT INTO scope (id, kind, max_tokens)
VALUES ('chat', 'chat', 500000)
ON CONFLICT (id) DO NOTHING;
