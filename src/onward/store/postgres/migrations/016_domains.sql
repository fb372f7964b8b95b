-- Needs no holders: the statements of an older one fail when the columns that they return get other types.
-- What a column of a limit, a reservation, a message or a chunk may hold is said by a domain, too, as 001 does it for runs
-- and for the same reason: the text of every CHECK was read for each call. A CHECK that concerns several columns stays.
CREATE DOMAIN scope_kind AS TEXT CHECK (VALUE IN ('chat', 'day', 'project', 'run'));
CREATE DOMAIN reservation_state AS TEXT CHECK (VALUE IN ('open', 'settled'));
CREATE DOMAIN message_role AS TEXT CHECK (VALUE IN ('user', 'assistant', 'system'));
CREATE DOMAIN message_state AS TEXT CHECK (VALUE IN ('streaming', 'complete', 'error', 'interrupted'));
CREATE DOMAIN chunk_kind AS TEXT CHECK (VALUE IN ('start', 'text', 'reasoning', 'tool_call', 'tool_result', 'end'));

ALTER TABLE run
    DROP CONSTRAINT run_is_dismissed_check,
    ALTER COLUMN is_dismissed TYPE flag;

ALTER TABLE scope
    DROP CONSTRAINT scope_kind_check,
    DROP CONSTRAINT scope_max_tokens_check,
    DROP CONSTRAINT scope_max_cost_micro_check,
    DROP CONSTRAINT scope_max_calls_check,
    DROP CONSTRAINT scope_spent_tokens_check,
    DROP CONSTRAINT scope_spent_cost_micro_check,
    DROP CONSTRAINT scope_spent_calls_check,
    DROP CONSTRAINT scope_reserved_tokens_check,
    DROP CONSTRAINT scope_reserved_cost_micro_check,
    DROP CONSTRAINT scope_reserved_calls_check,
    ALTER COLUMN kind TYPE scope_kind,
    ALTER COLUMN max_tokens TYPE tally,
    ALTER COLUMN max_cost_micro TYPE tally,
    ALTER COLUMN max_calls TYPE tally,
    ALTER COLUMN spent_tokens TYPE tally,
    ALTER COLUMN spent_cost_micro TYPE tally,
    ALTER COLUMN spent_calls TYPE tally,
    ALTER COLUMN reserved_tokens TYPE tally,
    ALTER COLUMN reserved_cost_micro TYPE tally,
    ALTER COLUMN reserved_calls TYPE tally;

DROP INDEX reservation_open;
ALTER TABLE reservation
    DROP CONSTRAINT reservation_state_check,
    DROP CONSTRAINT reservation_is_estimated_check,
    ALTER COLUMN state TYPE reservation_state,
    ALTER COLUMN is_estimated TYPE flag;
CREATE INDEX reservation_open ON reservation (run_id) WHERE state = 'open';

DROP INDEX message_streaming, message_unsealed, message_untidied, message_tidied;
ALTER TABLE message
    DROP CONSTRAINT message_role_check,
    DROP CONSTRAINT message_state_check,
    DROP CONSTRAINT message_next_index_check,
    DROP CONSTRAINT message_is_tidied_check,
    ALTER COLUMN role TYPE message_role,
    ALTER COLUMN state TYPE message_state,
    ALTER COLUMN next_index TYPE ordinal,
    ALTER COLUMN is_tidied TYPE flag;
CREATE INDEX message_streaming ON message (run_id) WHERE state = 'streaming';
CREATE INDEX message_unsealed ON message (n) WHERE state <> 'streaming' AND content IS NULL;
CREATE INDEX message_untidied ON message (ended_at_us) WHERE content IS NOT NULL AND is_tidied = 0;
CREATE INDEX message_tidied ON message (chat, last_position) WHERE is_tidied = 1;

ALTER TABLE chunk
    DROP CONSTRAINT chunk_kind_check,
    ALTER COLUMN kind TYPE chunk_kind;
