-- migrations_table --
CREATE TABLE IF NOT EXISTS migration (
    number INTEGER PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    applied_at_us INTEGER NOT NULL
) STRICT;

-- migration_newest --
SELECT coalesce(max(number), 0)
FROM migration;

-- migration_insert --
INSERT INTO migration (number, name, applied_at_us)
VALUES (:number, :name, CAST(unixepoch('subsec') * 1000000 AS INTEGER));

-- identity_get --
SELECT name, unmarked_until_us
FROM identity;

-- run_columns --
{column}

-- run_values --
:{column}

-- run_changes --
{changing} = :{changing}

-- run_insert --
INSERT INTO run ({run_columns}, hash, parent_hash, lease_until_us, due_at_us, changed)
VALUES (
    {run_values}, :hash, :parent_hash,
    CASE WHEN :owner IS NOT NULL THEN coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :lease_us END,
    coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :wake_at_us - :at_us,
    (SELECT number FROM change)
)
ON CONFLICT (id) DO NOTHING;

-- run_advance --
UPDATE run
SET head = ?, hash = ?, next_node = ?, doubtful = ?, steps_finished = ?,
    tokens = ?, cost_micro = ?, ticks = ?, updated_at_us = ?
WHERE id = ? AND head = ? AND hash = ? AND token = ? AND owner IS ?;

-- run_update --
UPDATE run
SET {run_changes}, hash = :hash,
    lease_until_us = CASE
        WHEN :owner IS NULL THEN NULL
        WHEN :token = token THEN lease_until_us
        ELSE coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :lease_us
    END,
    due_at_us = CASE
        WHEN :wake_at_us = wake_at_us THEN due_at_us
        ELSE coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :wake_at_us - :at_us
    END,
    changed = (SELECT number FROM change)
WHERE id = :id AND head = :after AND hash = :after_hash AND token = :held_token AND owner IS :held_owner;

-- run_touch --
-- A gate opened or closed while the run went on.
UPDATE run
SET changed = (SELECT number FROM change)
WHERE id = ?;

-- change_next --
UPDATE change
SET number = number + 1;

-- run_position --
SELECT head, hash, status, owner, token,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM run
WHERE id = :id;

-- run_holding_key --
SELECT id, owner, token
FROM run
WHERE exclusive_key = :key AND owner IS NOT NULL AND id <> :id;

-- lease_renew --
UPDATE run
SET lease_until_us = coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :lease_us
WHERE id = :id AND owner = :owner AND token = :token
RETURNING head;

-- lease_head --
SELECT head
FROM run
WHERE id = :id AND owner = :owner AND token = :token;

-- run_fork --
SELECT parent, parent_seq
FROM run
WHERE id = ?;

-- event_insert --
INSERT INTO event (run_id, seq, kind, v, at_us, token, body, hash, refs)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- event_hash --
SELECT hash
FROM event
WHERE run_id = ? AND seq = ?;

-- event_bodies --
SELECT body
FROM event
WHERE run_id = ? AND seq <= ? AND kind = ?
ORDER BY seq;

-- event_read --
SELECT run_id, seq, kind, v, at_us, token, body, hash, refs
FROM event
WHERE run_id = ? AND seq > ? AND seq <= ?
ORDER BY seq
LIMIT ?;

-- append_find --
SELECT last_seq
FROM append
WHERE run_id = ? AND append_id = ?;

-- append_insert --
INSERT INTO append (run_id, append_id, last_seq)
VALUES (?, ?, ?);

-- snapshot_put --
INSERT INTO snapshot (run_id, seq, hash, fold_version, body)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run_id) DO UPDATE
SET seq = excluded.seq, hash = excluded.hash, fold_version = excluded.fold_version, body = excluded.body;

-- snapshot_find --
SELECT seq, hash, fold_version, body
FROM snapshot
WHERE run_id = ? AND seq <= ? AND fold_version = ?;

-- blob_put --
INSERT INTO blob (hash, encoding, content, touched_at_us)
VALUES (?, ?, ?, ?)
ON CONFLICT (hash) DO UPDATE
SET touched_at_us = excluded.touched_at_us;

-- blob_hold --
-- Differs because the whole database is locked: what is stored stays while this transaction lasts.
SELECT touched_at_us
FROM blob
WHERE hash = ?;

-- blob_touch --
UPDATE blob
SET touched_at_us = ?
WHERE hash = ?;

-- blob_get --
SELECT encoding, content
FROM blob
WHERE hash = ?;

-- run_get --
SELECT {run_columns}, hash,
    coalesce(due_at_us, 0) <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    coalesce(lease_until_us, 0) <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM run
WHERE id = :id;

-- run_by_display_id --
SELECT id
FROM run
WHERE display_id = :wanted
ORDER BY id
LIMIT 20;

-- run_by_prefix --
SELECT id
FROM run
WHERE id >= :wanted AND id < :above
UNION
SELECT id
FROM run
WHERE display_id >= :wanted AND display_id < :above
ORDER BY id
LIMIT 20;

-- run_list --
-- Without the lines whose filter is not given. Differs because LIKE does not tell upper from lower case here, and because SQLite
-- uses an index without completed runs only if the query says that it wants none.
SELECT {run_columns}, hash,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM run
WHERE true
    AND status = :status AND status <> 'completed'
    AND status = :completed
    AND reason = :reason AND reason <> ''
    AND pipeline = :pipeline
    AND parent = :parent
    AND chat = :chat
    AND tags <> '' AND tags GLOB :tags
    AND created_at_us >= :since_us
    AND (created_at_us, id) < (:before_us, :before_id)
ORDER BY created_at_us DESC, id DESC
LIMIT :limit;

-- run_search --
-- Differs because SQLite would sort all that it finds, though it finds them in the order of the list.
SELECT *
FROM (
{run_list}
) AS listed
WHERE instr(id, :text) OR instr(display_id, :text) OR instr(lower(pipeline), :text) OR instr(lower(detail), :text)
LIMIT :found;

-- run_heads --
SELECT id, head, status, changed, owner, token,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM run
WHERE id IN (SELECT value FROM json_each(:ids));

-- run_change_number --
SELECT number
FROM change;

-- run_changed --
SELECT {run_columns}, hash, changed,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM run
WHERE changed > :after
ORDER BY changed
LIMIT :limit;

-- run_of_chats --
SELECT {run_columns}, hash,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM run
WHERE id IN (
    SELECT (
        SELECT newest.id
        FROM run AS newest
        WHERE newest.chat = wanted.value AND newest.managed_by IS NULL
            AND instr(newest.tags, ' onward-reading ') = 0
        ORDER BY newest.created_at_us DESC, newest.id DESC
        LIMIT 1
    )
    FROM json_each(:chats) AS wanted
);

-- run_relatives --
SELECT id
FROM (
    SELECT id, created_at_us
    FROM run
    WHERE parent = :id
    UNION
    SELECT id, created_at_us
    FROM run
    WHERE managed_by = :id
) AS relative
ORDER BY created_at_us, id
LIMIT :limit;

-- run_awaited --
-- Differs because SQLite does not infer `status <> 'completed'` from `status = 'waiting'`.
SELECT parent.id, child.id
FROM (
    SELECT id, updated_at_us
    FROM run
    WHERE status = 'waiting' AND status <> 'completed'
    UNION ALL
    SELECT id, updated_at_us
    FROM run
    WHERE reason = :reason AND reason <> '' AND status = 'interrupted'
) AS parent
JOIN run AS child ON child.managed_by = parent.id
WHERE child.status IN ('completed', 'cancelled', 'failed')
    AND child.updated_at_us > parent.updated_at_us - :slack_us
ORDER BY parent.id, child.id
LIMIT :limit;

-- gate_put --
INSERT INTO gate (
    run_id, gate, gate_hash, pipeline, node, text, about, type, choices, opened_at_us, deadline_us, decided_by,
    closed_at_us
)
VALUES (
    :run_id, :gate, :gate_hash, :pipeline, :node, :text, :about, :type, :choices, :opened_at_us, :deadline_us,
    :decided_by, :closed_at_us
)
ON CONFLICT (run_id, gate_hash) DO UPDATE
SET
    text = excluded.text,
    about = excluded.about,
    type = excluded.type,
    choices = excluded.choices,
    opened_at_us = excluded.opened_at_us,
    deadline_us = excluded.deadline_us,
    decided_by = excluded.decided_by,
    closed_at_us = excluded.closed_at_us;

-- gate_open --
-- Without the lines whose filter is not given.
SELECT run_id, gate, pipeline, node, text, about, type, choices, opened_at_us, deadline_us, decided_by,
    closed_at_us
FROM gate
WHERE closed_at_us IS NULL
    AND pipeline = :pipeline
    AND run_id = :run_id
    AND run_id IN (SELECT id FROM run WHERE run.chat = :chat)
    AND (opened_at_us, run_id, gate) > (:after_us, :after_run, :after_gate)
ORDER BY opened_at_us, run_id, gate
LIMIT :limit;

-- gate_read --
SELECT run_id, gate, pipeline, node, text, about, type, choices, opened_at_us, deadline_us, decided_by,
    closed_at_us
FROM gate
WHERE run_id = :run_id
ORDER BY opened_at_us, gate;

-- subscriber_get --
SELECT kinds, wanted_until_us - coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM subscriber
WHERE name = :subscriber;

-- subscriber_put --
INSERT INTO subscriber (name, kinds, wanted_until_us)
VALUES (:subscriber, :kinds, coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :for_us)
ON CONFLICT (name) DO UPDATE
SET kinds = excluded.kinds, wanted_until_us = excluded.wanted_until_us;

-- subscriber_any --
SELECT 1
FROM subscriber
WHERE wanted_until_us > coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
LIMIT 1;

-- outbox_put --
INSERT INTO outbox (id, subscriber, run_id, seq, kind, body, created_at_us, state, token, tries, due_at_us, tried_at_us,
    delivered_at_us, response, error)
SELECT :id, subscriber.name, :run_id, :seq, :kind, :body, :at_us, 'waiting', 0, 0,
    coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)), NULL, NULL, NULL, ''
FROM subscriber
WHERE instr(subscriber.kinds, :mark) > 0
    AND subscriber.wanted_until_us > coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (id, subscriber) DO NOTHING;

-- outbox_due --
-- Also a part of outbox_claim. That the state is not 'delivered' is said for the index.
SELECT id, subscriber
FROM outbox
WHERE subscriber = :subscriber AND state = 'waiting' AND state <> 'delivered'
    AND due_at_us <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ORDER BY due_at_us, created_at_us, id
LIMIT :limit;

-- outbox_claim --
UPDATE outbox
SET token = token + 1, tries = tries + 1, tried_at_us = coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    due_at_us = coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :lease_us
WHERE (id, subscriber) IN (
    {outbox_due}
)
RETURNING id, subscriber, run_id, seq, kind, body, created_at_us, state, token, tries, due_at_us, tried_at_us,
    delivered_at_us, response, error;

-- outbox_record --
UPDATE outbox
SET state = :state, response = :response, error = :error,
    due_at_us = coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :wait_us,
    delivered_at_us = CASE WHEN :state = 'delivered' THEN coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) END
WHERE id = :id AND subscriber = :subscriber AND token = :token AND state = 'waiting';

-- outbox_waiting --
SELECT count(*)
FROM outbox
WHERE subscriber = :subscriber AND state = 'waiting' AND state <> 'delivered';

-- outbox_list --
-- Without the lines whose filter is not given.
SELECT id, subscriber, run_id, seq, kind, body, created_at_us, state, token, tries, due_at_us, tried_at_us,
    delivered_at_us, response, error
FROM outbox
WHERE true
    AND run_id = :run_id
    AND state = :state
    AND (created_at_us, id, subscriber) < (:before_us, :before_id, :before_subscriber)
ORDER BY created_at_us DESC, id DESC, subscriber DESC
LIMIT :limit;

-- outbox_retry --
UPDATE outbox
SET state = 'waiting', tries = 0, due_at_us = coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)), delivered_at_us = NULL
WHERE id = :id
RETURNING id, subscriber, run_id, seq, kind, body, created_at_us, state, token, tries, due_at_us, tried_at_us,
    delivered_at_us, response, error;

-- place_lock --
SELECT head, hash, owner, token
FROM run
WHERE id = :id;

-- reservation_find --
SELECT run_id, step, call, try, token, scopes, model, reserved_tokens, reserved_cost_micro, reserved_calls, state,
    charged_tokens, charged_cost_micro, charged_calls, is_estimated
FROM reservation
WHERE run_id = :run_id AND call_hash = :call_hash AND state = 'open';

-- scope_make --
INSERT INTO scope (id, kind)
VALUES (:id, :kind)
ON CONFLICT (id) DO NOTHING;

-- scope_charge --
-- Differs because the row need not be made beforehand: the whole database is locked.
INSERT INTO scope (id, kind, spent_tokens, spent_cost_micro, spent_calls, reserved_tokens, reserved_cost_micro,
    reserved_calls, warned)
VALUES (:id, :kind, :spent_tokens, :spent_cost_micro, :spent_calls, :reserved_tokens, :reserved_cost_micro,
    :reserved_calls, :warned)
ON CONFLICT (id) DO UPDATE
SET spent_tokens = excluded.spent_tokens, spent_cost_micro = excluded.spent_cost_micro,
    spent_calls = excluded.spent_calls, reserved_tokens = excluded.reserved_tokens,
    reserved_cost_micro = excluded.reserved_cost_micro, reserved_calls = excluded.reserved_calls,
    warned = excluded.warned;

-- scope_reserve --
-- One call that begins, in one scope; nothing is changed if that has no row or no room. Differs because scopes are charged one
-- by one: an IN with several ids builds a table of its own for each execution, which took longer than all the rest.
UPDATE scope
SET reserved_tokens = min(reserved_tokens, {amount_max}) + :tokens,
    reserved_cost_micro = min(reserved_cost_micro, {amount_max}) + :cost_micro,
    reserved_calls = min(reserved_calls, {amount_max}) + :calls
WHERE id = :id
    AND (coalesce(max_tokens, (SELECT kind.max_tokens FROM scope AS kind WHERE kind.id = scope.kind), 0) = 0 OR spent_tokens + reserved_tokens + :tokens
        <= coalesce(max_tokens, (SELECT kind.max_tokens FROM scope AS kind WHERE kind.id = scope.kind), 0))
    AND (coalesce(max_cost_micro, (SELECT kind.max_cost_micro FROM scope AS kind WHERE kind.id = scope.kind), 0) = 0 OR :is_priced
        AND spent_cost_micro + reserved_cost_micro + :cost_micro
        <= coalesce(max_cost_micro, (SELECT kind.max_cost_micro FROM scope AS kind WHERE kind.id = scope.kind), 0))
    AND (coalesce(max_calls, (SELECT kind.max_calls FROM scope AS kind WHERE kind.id = scope.kind), 0) = 0 OR spent_calls + reserved_calls + :calls
        <= coalesce(max_calls, (SELECT kind.max_calls FROM scope AS kind WHERE kind.id = scope.kind), 0));

-- scope_unreserve --
-- Undoes that, because another scope of the call has no room.
UPDATE scope
SET reserved_tokens = max(reserved_tokens - :tokens, 0), reserved_cost_micro = max(reserved_cost_micro - :cost_micro, 0),
    reserved_calls = max(reserved_calls - :calls, 0)
WHERE id = :id;

-- reservation_begin --
INSERT INTO reservation (run_id, call_hash, step, call, try, token, scopes, model, reserved_tokens, reserved_cost_micro,
    reserved_calls, state, charged_tokens, charged_cost_micro, charged_calls, is_estimated)
VALUES (:run_id, :call_hash, :step, :call, :number, :token, :scopes, :model, :reserved_tokens, :reserved_cost_micro,
    :reserved_calls, 'open', 0, 0, 0, 0);

-- reservation_end --
UPDATE reservation
SET state = 'settled', charged_tokens = :charged_tokens, charged_cost_micro = :charged_cost_micro,
    charged_calls = :charged_calls, is_estimated = :is_estimated
WHERE run_id = :run_id AND call_hash = :call_hash AND state <> 'settled';

-- scope_settle --
-- One call that ends, the same way: nothing is changed if a limit is nearly spent, and nobody was told so.
UPDATE scope
SET spent_tokens = min(spent_tokens, {amount_max}) + :charged_tokens,
    spent_cost_micro = min(spent_cost_micro, {amount_max}) + :charged_cost_micro,
    spent_calls = min(spent_calls, {amount_max}) + :charged_calls,
    reserved_tokens = max(reserved_tokens - :reserved_tokens, 0),
    reserved_cost_micro = max(reserved_cost_micro - :reserved_cost_micro, 0),
    reserved_calls = max(reserved_calls - :reserved_calls, 0)
WHERE id = :id AND NOT (
        coalesce(max_tokens, (SELECT kind.max_tokens FROM scope AS kind WHERE kind.id = scope.kind), 0) > 0 AND (spent_tokens + :charged_tokens) * 100
            >= coalesce(max_tokens, (SELECT kind.max_tokens FROM scope AS kind WHERE kind.id = scope.kind), 0) * :warn_percent
            AND instr(' ' || warned || ' ', ' tokens ') = 0
        OR coalesce(max_cost_micro, (SELECT kind.max_cost_micro FROM scope AS kind WHERE kind.id = scope.kind), 0) > 0 AND (spent_cost_micro + :charged_cost_micro) * 100
            >= coalesce(max_cost_micro, (SELECT kind.max_cost_micro FROM scope AS kind WHERE kind.id = scope.kind), 0) * :warn_percent
            AND instr(' ' || warned || ' ', ' cost ') = 0
        OR coalesce(max_calls, (SELECT kind.max_calls FROM scope AS kind WHERE kind.id = scope.kind), 0) > 0 AND (spent_calls + :charged_calls) * 100
            >= coalesce(max_calls, (SELECT kind.max_calls FROM scope AS kind WHERE kind.id = scope.kind), 0) * :warn_percent
            AND instr(' ' || warned || ' ', ' calls ') = 0
    );

-- scope_unsettle --
-- Undoes that, because another scope of the call is nearly spent.
UPDATE scope
SET spent_tokens = max(spent_tokens - :charged_tokens, 0), spent_cost_micro = max(spent_cost_micro - :charged_cost_micro, 0),
    spent_calls = max(spent_calls - :charged_calls, 0), reserved_tokens = reserved_tokens + :reserved_tokens,
    reserved_cost_micro = reserved_cost_micro + :reserved_cost_micro, reserved_calls = reserved_calls + :reserved_calls
WHERE id = :id;

-- reservation_reopen --
UPDATE reservation
SET state = 'open', charged_tokens = 0, charged_cost_micro = 0, charged_calls = 0, is_estimated = 0
WHERE run_id = :run_id AND call_hash = :call_hash;

-- scope_limit --
UPDATE scope
SET max_tokens = :max_tokens, max_cost_micro = :max_cost_micro, max_calls = :max_calls, warned = :warned
WHERE id = :id;

-- scope_find --
SELECT scope.id, scope.max_tokens, scope.max_cost_micro, scope.max_calls,
    kind.max_tokens, kind.max_cost_micro, kind.max_calls,
    scope.spent_tokens, scope.spent_cost_micro, scope.spent_calls,
    scope.reserved_tokens, scope.reserved_cost_micro, scope.reserved_calls, scope.warned
FROM scope
LEFT JOIN scope AS kind ON kind.id = scope.kind
WHERE scope.id IN (SELECT value FROM json_each(:ids));

-- scope_list --
SELECT scope.id, scope.max_tokens, scope.max_cost_micro, scope.max_calls,
    kind.max_tokens, kind.max_cost_micro, kind.max_calls,
    scope.spent_tokens, scope.spent_cost_micro, scope.spent_calls,
    scope.reserved_tokens, scope.reserved_cost_micro, scope.reserved_calls, scope.warned
FROM scope
LEFT JOIN scope AS kind ON kind.id = scope.kind
ORDER BY scope.id = scope.kind DESC, scope.kind, CASE WHEN scope.kind = 'day' THEN scope.id ELSE '' END DESC, scope.id
LIMIT :limit;

-- scope_delete --
DELETE FROM scope
WHERE id = 'run/' || :id AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = :id);

-- reservation_put --
INSERT INTO reservation (run_id, call_hash, step, call, try, token, scopes, model, reserved_tokens, reserved_cost_micro,
    reserved_calls, state, charged_tokens, charged_cost_micro, charged_calls, is_estimated)
VALUES (:run_id, :call_hash, :step, :call, :number, :token, :scopes, :model, :reserved_tokens, :reserved_cost_micro,
    :reserved_calls, :state, :charged_tokens, :charged_cost_micro, :charged_calls, :is_estimated)
ON CONFLICT (run_id, call_hash) DO UPDATE
SET state = excluded.state, charged_tokens = excluded.charged_tokens, charged_cost_micro = excluded.charged_cost_micro,
    charged_calls = excluded.charged_calls, is_estimated = excluded.is_estimated;

-- reservation_read --
SELECT run_id, step, call, try, token, scopes, model, reserved_tokens, reserved_cost_micro, reserved_calls, state,
    charged_tokens, charged_cost_micro, charged_calls, is_estimated
FROM reservation
WHERE run_id = :run_id;

-- reservation_held --
SELECT reservation.run_id, reservation.scopes, owner, run.token,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM reservation
JOIN run ON run.id = reservation.run_id
WHERE reservation.state = 'open';

-- usage_add --
INSERT INTO usage (key_hash, day, project, chat, run_id, pipeline, model, input, output, cached, tokens, cost_micro, calls,
    estimated)
VALUES (:key_hash, :day, :project, :chat, :run_id, :pipeline, :model, :input, :output, :cached, :tokens, :cost_micro, :calls,
    :estimated)
ON CONFLICT (key_hash) DO UPDATE
SET input = min(usage.input, {amount_max}) + excluded.input, output = min(usage.output, {amount_max}) + excluded.output,
    cached = min(usage.cached, {amount_max}) + excluded.cached, tokens = min(usage.tokens, {amount_max}) + excluded.tokens,
    cost_micro = min(usage.cost_micro, {amount_max}) + excluded.cost_micro,
    calls = min(usage.calls, {amount_max}) + excluded.calls,
    estimated = min(usage.estimated, {amount_max}) + excluded.estimated;

-- usage_list --
-- The column that it is put together by is filled in. Differs because a sum fails here if it overflows; a total is exact as far
-- as amounts go.
SELECT {what}, CAST(min(total(input), {amount_max}) AS INTEGER), CAST(min(total(output), {amount_max}) AS INTEGER),
    CAST(min(total(cached), {amount_max}) AS INTEGER), CAST(min(total(tokens), {amount_max}) AS INTEGER),
    CAST(min(total(cost_micro), {amount_max}) AS INTEGER), CAST(min(total(calls), {amount_max}) AS INTEGER),
    CAST(min(total(estimated), {amount_max}) AS INTEGER)
FROM usage
GROUP BY {what}
ORDER BY CASE WHEN :by = 'day' THEN {what} ELSE '' END DESC, 6 DESC, 5 DESC, {what}
LIMIT :limit;

-- backfill_read --
SELECT run_id
FROM backfill
ORDER BY run_id;

-- backfill_run --
UPDATE run
SET doubtful = :doubtful, tokens = :tokens, cost_micro = :cost_micro, ticks = :ticks
WHERE id = :run_id AND head = :head AND hash = :hash;

-- backfill_delete --
DELETE FROM backfill
WHERE run_id = :run_id;

-- run_newest_due --
SELECT coalesce(max(due_at_us), 0)
FROM run
WHERE due_at_us IS NOT NULL AND due_at_us <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER));

-- run_due --
SELECT id, pipeline, max_running
FROM run
WHERE due_at_us IS NOT NULL AND due_at_us <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
    AND id NOT IN (SELECT value FROM json_each(:skipped))
    AND needs NOT IN (SELECT value FROM json_each(:unserved))
    AND pipeline NOT IN (SELECT value FROM json_each(:full))
    AND NOT EXISTS (
        SELECT 1
        FROM run AS other
        WHERE other.exclusive_key = run.exclusive_key AND other.owner IS NOT NULL
    )
ORDER BY priority DESC, due_at_us, id
LIMIT 1;

-- ceiling_lock --
INSERT INTO ceiling (pipeline)
VALUES (:pipeline)
ON CONFLICT (pipeline) DO UPDATE SET pipeline = excluded.pipeline;

-- ceiling_used --
-- Only running runs are held; said in every way, whichever index is used has no others in it.
-- Differs because SQLite does not infer `status <> 'completed'` from `status = 'running'`.
SELECT count(*)
FROM run
WHERE pipeline = :pipeline AND owner IS NOT NULL AND status = 'running' AND status <> 'completed';

-- run_held --
-- In no order: one by the id could be had by reading every run there ever was, and some plans would.
SELECT {run_columns}, hash,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM run
WHERE owner IS NOT NULL;

-- owner_named --
SELECT owner
FROM run
WHERE owner IS NOT NULL
UNION
SELECT owner
FROM effect
WHERE state = 'begun'
UNION
SELECT owner
FROM worker;

-- run_count --
SELECT status, count(*)
FROM run
GROUP BY status;

-- measure_now --
SELECT coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER));

-- measure_reasons --
-- Differs as measure_ended does.
SELECT status, reason, recoverable, count(*)
FROM run
WHERE reason <> ''
GROUP BY +status, reason, recoverable;

-- measure_queue --
SELECT due_at_us <= :now_us AS is_due, count(*), min(due_at_us)
FROM run
WHERE due_at_us IS NOT NULL
GROUP BY is_due;

-- measure_holders --
SELECT owner, coalesce(lease_until_us, 0) <= :now_us AS is_expired, count(*)
FROM run
WHERE owner IS NOT NULL
GROUP BY owner, is_expired;

-- measure_ended --
-- Differs because SQLite would rather group by an index of all runs; the + takes that from it.
SELECT status, count(*) FILTER (WHERE ended_at_us >= :hour_us), count(*)
FROM run
WHERE ended_at_us IS NOT NULL AND ended_at_us >= :day_us
GROUP BY +status;

-- measure_stuck --
SELECT stuck.run_id, stuck.failures, stuck.failed_at_us, stuck.why
FROM stuck
JOIN run ON run.id = stuck.run_id
WHERE run.head = stuck.head AND run.due_at_us IS NOT NULL
ORDER BY stuck.failed_at_us DESC, stuck.run_id
LIMIT 100;

-- measure_needs --
-- Of the first in the queue alone: those that no worker can serve come to stand there.
SELECT needs, count(*)
FROM (
    SELECT needs
    FROM run
    WHERE due_at_us IS NOT NULL AND due_at_us <= :now_us
    ORDER BY priority DESC, due_at_us, id
    LIMIT 10000
) AS first
GROUP BY needs;
-- measure_outbox --
SELECT state, count(*), min(created_at_us)
FROM outbox
WHERE state <> 'delivered'
GROUP BY state;

-- stuck_put --
INSERT INTO stuck (run_id, head, failures, failed_at_us, why)
SELECT id, head, 1, coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)), :why
FROM run
WHERE id = :run_id
ON CONFLICT (run_id) DO UPDATE
SET failures = CASE WHEN stuck.head = excluded.head THEN stuck.failures + 1 ELSE 1 END,
    head = excluded.head, failed_at_us = excluded.failed_at_us, why = excluded.why;

-- worker_put --
INSERT INTO worker (owner, handlers, lacks, concurrency, started_at_us, lease_until_us)
VALUES (:owner, :handlers, :lacks, :concurrency, coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)), coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :lease_us)
ON CONFLICT (owner) DO UPDATE
SET handlers = excluded.handlers, lacks = excluded.lacks, concurrency = excluded.concurrency,
    lease_until_us = excluded.lease_until_us;

-- worker_leave --
DELETE FROM worker
WHERE owner = :owner;

-- worker_read --
SELECT owner, handlers, lacks, concurrency, started_at_us, lease_until_us, lease_until_us <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM worker
ORDER BY started_at_us, owner;

-- worker_remove --
DELETE FROM worker
WHERE owner = :owner AND lease_until_us = :lease_until_us
RETURNING owner;

-- effect_begin --
INSERT INTO effect (key, state, token, owner, lease_until_us, begun_at_us)
VALUES (:key, 'begun', :token, :owner, coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :lease_us, :at_us)
ON CONFLICT (key) DO UPDATE
SET token = excluded.token, owner = excluded.owner, lease_until_us = excluded.lease_until_us,
    begun_at_us = excluded.begun_at_us
WHERE effect.state = 'begun' AND effect.token = :instead_of;

-- effect_finish --
UPDATE effect
SET state = 'finished', result = :result, finished_at_us = :at_us
WHERE key = :key AND token = :token AND state = 'begun';

-- effect_renew --
UPDATE effect
SET lease_until_us = coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :lease_us
WHERE key = :key AND token = :token AND state = 'begun'
RETURNING key;

-- effect_forget --
DELETE FROM effect
WHERE key = :key AND token = :token;

-- effect_find --
SELECT key, token, owner, begun_at_us, finished_at_us, result, lease_until_us <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM effect
WHERE key = :key;

-- effect_read --
SELECT key, token, owner, begun_at_us, finished_at_us, result, lease_until_us <= coalesce(:now_us, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM effect
WHERE key >= :first AND key < :behind
ORDER BY key
LIMIT :limit;

-- run_expired --
SELECT id, head, status, parent, restarted_as, managed_by, restart_of
FROM (
    SELECT *
    FROM run
    WHERE status IN (SELECT value FROM json_each(:statuses))
    ORDER BY created_at_us DESC, id DESC
    LIMIT -1 OFFSET :keep
) AS old
WHERE updated_at_us < :before_us
ORDER BY created_at_us, id;

-- run_attached --
SELECT id, head, status, parent, restarted_as, managed_by, restart_of
FROM run
WHERE parent > '' OR status IN ('queued', 'running', 'waiting', 'paused', 'interrupted', 'failed');

-- run_delete --
DELETE FROM run
WHERE id = :id AND head = :head AND owner IS NULL
    AND NOT EXISTS (SELECT 1 FROM run AS child WHERE child.parent = run.id);

-- event_delete --
DELETE FROM event
WHERE run_id = :id AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = :id);

-- append_delete --
DELETE FROM append
WHERE run_id = :id AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = :id);

-- snapshot_delete --
DELETE FROM snapshot
WHERE run_id = :id AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = :id);

-- effect_delete --
DELETE FROM effect
WHERE key >= :first AND key < :behind AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = :id);

-- run_remaining --
SELECT id
FROM run
WHERE id IN (SELECT value FROM json_each(:ids));

-- blob_unused --
SELECT hash
FROM blob
WHERE touched_at_us < :before_us
EXCEPT
SELECT pipeline_hash
FROM run
EXCEPT
SELECT ltrim(ref.value, '~')
FROM event, json_each('["' || replace(event.refs, ' ', '","') || '"]') AS ref
WHERE event.refs IS NOT NULL
EXCEPT
SELECT content
FROM message
WHERE content IS NOT NULL
EXCEPT
SELECT hash
FROM pipeline_version
WHERE name IN (SELECT name FROM pipeline WHERE enabled IS NOT NULL)
EXCEPT
SELECT json_extract(body, '$.before')
FROM event
WHERE kind = 'PipelineChanged'
LIMIT :limit;

-- blob_mark --
UPDATE blob
SET touched_at_us = :mark
WHERE hash = :hash AND touched_at_us < :before_us;

-- blob_delete --
DELETE FROM blob
WHERE hash = :hash AND touched_at_us = :mark
RETURNING length(content);

-- event_receive --
INSERT INTO event (run_id, seq, kind, v, at_us, token, body, hash, refs)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, seq) DO NOTHING;

-- effect_receive --
INSERT INTO effect (key, state, token, owner, lease_until_us, result, begun_at_us, finished_at_us)
VALUES (:key, :state, :token, :owner, 0, :result, :begun_at_us, :finished_at_us)
ON CONFLICT (key) DO NOTHING;

-- chat_put --
INSERT INTO chat (id, created_at_us)
VALUES (:chat, :at_us)
ON CONFLICT (id) DO NOTHING;

-- message_begin --
INSERT INTO message (
    id, chat, run_id, step, call, try, role, state, token, next_index, first_position, model, begun_at_us, changed_at_us
)
SELECT :id, chat.n, :run_id, :step, :call, :number, 'assistant', 'streaming', :token, 1, chat.position + 1, :model,
    :at_us, :at_us
FROM chat
WHERE chat.id = :chat
ON CONFLICT (id) DO NOTHING
RETURNING chat, first_position, n;

-- message_end --
UPDATE message
SET state = :state, next_index = next_index + 1, ended_at_us = :at_us, changed_at_us = :at_us,
    last_position = (SELECT chat.position + 1 FROM chat WHERE chat.n = message.chat),
    model = CASE WHEN :model = '' THEN model ELSE :model END,
    content = :content
WHERE run_id = :run_id AND state = 'streaming' AND step = :step AND call = :call AND try = :number
RETURNING chat, last_position, n, next_index - 1;

-- message_lock --
-- Differs because the whole database is locked.
SELECT message.n, message.run_id, message.state, message.token, message.next_index, chat.n, chat.position
FROM message
JOIN chat ON chat.n = message.chat
WHERE message.id = ?;

-- chunk_insert --
INSERT INTO chunk (chat, position, message, "index", kind, text)
VALUES (?, ?, ?, ?, ?, ?);

-- message_move --
UPDATE message
SET next_index = ?, changed_at_us = ?
WHERE n = ?;

-- chat_move --
UPDATE chat
SET position = ?
WHERE n = ?;

-- chat_positions --
SELECT id, position
FROM chat
WHERE id IN (SELECT value FROM json_each(:chats));

-- message_unsealed --
SELECT n
FROM message
WHERE state <> 'streaming' AND content IS NULL
ORDER BY n
LIMIT :limit;

-- message_untidied --
SELECT n, chat, first_position, last_position
FROM message
WHERE content IS NOT NULL AND is_tidied = 0 AND ended_at_us < :before_us
ORDER BY ended_at_us
LIMIT :limit;

-- chunk_read --
SELECT chunk.position, message.id, chunk."index", chunk.kind, chunk.text
FROM chat
JOIN chunk ON chunk.chat = chat.n
JOIN message ON message.n = chunk.message
WHERE chat.id = :chat AND chunk.position > :after
ORDER BY chunk.position
LIMIT :limit;

-- message_resets --
SELECT message.id, message.last_position, message.role, message.state, message.content
FROM chat
JOIN message ON message.chat = chat.n
WHERE chat.id = :chat AND message.is_tidied = 1 AND message.last_position > :after
ORDER BY message.last_position
LIMIT :limit;

-- message_get --
SELECT message.n, message.content
FROM message
WHERE message.id = :id;

-- message_contents --
SELECT message.id, message.n, message.content
FROM message
WHERE message.id IN (SELECT value FROM json_each(:ids));

-- message_of_run --
SELECT message.id, chat.id, message.run_id, message.step, message.call, message.try, message.role, message.state,
    message.model, message.begun_at_us, message.changed_at_us, message.ended_at_us, message.first_position, message.last_position,
    message.content, message.is_tidied
FROM message
JOIN chat ON chat.n = message.chat
WHERE message.run_id = :run_id AND message.first_position > :after
ORDER BY message.first_position, message.n
LIMIT :limit;

-- message_of_chat --
SELECT message.id, chat.id, message.run_id, message.step, message.call, message.try, message.role, message.state,
    message.model, message.begun_at_us, message.changed_at_us, message.ended_at_us, message.first_position, message.last_position,
    message.content, message.is_tidied
FROM chat
JOIN message ON message.chat = chat.n
WHERE chat.id = :chat AND message.first_position > :after
ORDER BY message.first_position
LIMIT :limit;

-- message_newest --
SELECT *
FROM (
    SELECT message.id, chat.id, message.run_id, message.step, message.call, message.try, message.role, message.state,
        message.model, message.begun_at_us, message.changed_at_us, message.ended_at_us, message.first_position, message.last_position,
        message.content, message.is_tidied
    FROM chat
    JOIN message ON message.chat = chat.n
    WHERE chat.id = :chat
    ORDER BY message.first_position DESC
    LIMIT :limit
) AS newest
ORDER BY first_position;

-- message_named --
SELECT message.id, chat.id, message.run_id, message.step, message.call, message.try, message.role, message.state,
    message.model, message.begun_at_us, message.changed_at_us, message.ended_at_us, message.first_position, message.last_position,
    message.content, message.is_tidied
FROM message
JOIN chat ON chat.n = message.chat
WHERE message.id IN (SELECT value FROM json_each(:ids))
ORDER BY message.begun_at_us, message.n;

-- message_chunks --
SELECT chunk.kind, chunk.text
FROM message
JOIN chunk ON chunk.chat = message.chat AND chunk.position >= message.first_position
    AND chunk.position <= coalesce(message.last_position, 9223372036854775807) AND chunk.message = message.n
WHERE message.n = :n
ORDER BY chunk.position;

-- message_seal --
UPDATE message
SET content = :content
WHERE n = :n AND content IS NULL;

-- chunk_tidy --
DELETE FROM chunk
WHERE chunk.chat = :chat AND chunk.position >= :first AND chunk.position <= :last AND chunk.message = :n;

-- message_tidy --
UPDATE message
SET is_tidied = 1
WHERE n = :n;

-- chunk_delete --
DELETE FROM chunk
WHERE chat IN (SELECT n FROM chat WHERE id = :chat) AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = :id);

-- message_delete --
DELETE FROM message
WHERE chat IN (SELECT n FROM chat WHERE id = :chat) AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = :id);

-- chat_delete --
DELETE FROM chat
WHERE id = :chat AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = :id);

-- message_receive --
INSERT INTO message (
    id, chat, run_id, step, call, try, role, state, token, next_index, first_position, last_position, model, content,
    begun_at_us, changed_at_us, ended_at_us, is_tidied
)
SELECT :id, chat.n, :run_id, :step, :call, :number, :role, :state, 0, 1, chat.position + 1, chat.position + 1, :model,
    :content, :begun_at_us, :changed_at_us, :ended_at_us, 1
FROM chat
WHERE chat.id = :chat
ON CONFLICT (id) DO NOTHING
RETURNING chat, last_position;

-- pipeline_make --
-- Locks the name that is there, so that its versions are counted by one process at a time.
INSERT INTO pipeline (name, enabled, changed_by, changed_at_us)
VALUES (:pipeline, NULL, :by, :at_us)
ON CONFLICT (name) DO UPDATE
SET name = excluded.name;

-- pipeline_add --
INSERT INTO pipeline_version (name, version, hash, file, added_by, added_at_us)
SELECT :pipeline, coalesce(max(version), 0) + 1, :hash, :file, :by, :at_us
FROM pipeline_version
WHERE name = :pipeline
ON CONFLICT (name, hash) DO NOTHING;

-- pipeline_source --
SELECT name, version, hash, file, added_by, added_at_us
FROM pipeline_version
WHERE name = :pipeline AND hash = :hash;

-- pipeline_enable --
UPDATE pipeline
SET enabled = :version, changed_by = :by, changed_at_us = :at_us
WHERE name = :pipeline AND enabled <> :version;

-- pipeline_enable_added --
UPDATE pipeline
SET enabled = added.version, changed_by = :by, changed_at_us = :at_us
FROM pipeline_version AS added
WHERE pipeline.name = :pipeline AND added.name = :pipeline AND added.hash = :hash
    AND (enabled IS NULL OR (:enables = 1 AND enabled <> added.version));

-- pipeline_remove --
UPDATE pipeline
SET enabled = NULL, changed_by = :by, changed_at_us = :at_us
WHERE name = :pipeline AND enabled IS NOT NULL;

-- pipeline_find --
SELECT name, enabled, (SELECT max(version) FROM pipeline_version WHERE pipeline_version.name = pipeline.name), changed_by, changed_at_us
FROM pipeline
WHERE name = :pipeline;

-- pipeline_list --
SELECT name, enabled, (SELECT max(version) FROM pipeline_version WHERE pipeline_version.name = pipeline.name), changed_by, changed_at_us
FROM pipeline
WHERE enabled IS NOT NULL AND name > :after
ORDER BY name
LIMIT :limit;

-- pipeline_versions --
SELECT name, version, hash, file, added_by, added_at_us
FROM pipeline_version
WHERE name = :pipeline AND version <= :upto
ORDER BY version DESC
LIMIT :limit;

-- intake_put --
INSERT INTO intake (
    message, chat, body_hash, said_by, wish, project, pipeline, workdir, state, behind, outcome, run_id, reading, notice, at_us
)
VALUES (:message, :chat, :body_hash, :said_by, :wish, :project, :pipeline, :workdir, 'pending', '', '', '', :reading, '', :at_us)
ON CONFLICT (message) DO NOTHING;

-- intake_get --
SELECT n, message, chat, body_hash, said_by, wish, project, pipeline, workdir, state, behind, outcome, run_id, reading, notice, at_us,
    done_at_us
FROM intake
WHERE message = :message;

-- intake_of_chat --
SELECT *
FROM (
    SELECT n, message, chat, body_hash, said_by, wish, project, pipeline, workdir, state, behind, outcome, run_id, reading, notice,
        at_us, done_at_us
    FROM intake
    WHERE chat = :chat
    ORDER BY n DESC
    LIMIT :limit
) AS newest
ORDER BY n;

-- intake_open --
SELECT n, message, chat, body_hash, said_by, wish, project, pipeline, workdir, state, behind, outcome, run_id, reading, notice, at_us,
    done_at_us
FROM intake
WHERE chat = :chat AND state <> 'done'
ORDER BY n
LIMIT :limit;

-- intake_waiting --
SELECT chat, count(*)
FROM intake
WHERE chat IN (SELECT value FROM json_each(:chats)) AND state <> 'done'
GROUP BY chat;

-- intake_free --
-- Without the line whose filter is not given.
SELECT n, message, chat, body_hash, said_by, wish, project, pipeline, workdir, state, behind, outcome, run_id, reading, notice, at_us,
    done_at_us
FROM intake
WHERE state <> 'done' AND n > :after
    AND chat = :chat
    AND NOT EXISTS (
        SELECT 1
        FROM run
        WHERE run.id = intake.behind AND run.is_dismissed = 0 AND run.status NOT IN ('completed', 'failed', 'cancelled')
            AND (instr(run.tags, ' onward-reading ') = 0 OR run.status IN ('queued', 'running'))
    )
ORDER BY n
LIMIT :limit;

-- intake_note --
UPDATE intake
SET behind = :behind, reading = :reading
WHERE message = :message AND state = 'pending' AND reading = :seen;

-- intake_begin --
-- Differs because the whole database is locked: the chat's turn is moved after it.
UPDATE intake
SET state = 'starting', run_id = :run_id, reading = :reading
WHERE message = :message AND state = 'pending' AND reading = :seen
    AND EXISTS (SELECT 1 FROM chat WHERE chat.id = intake.chat AND chat.turn = :turn)
RETURNING chat;

-- chat_turn --
UPDATE chat
SET turn = turn + 1
WHERE id = :chat;

-- intake_settle --
UPDATE intake
SET state = 'done', outcome = :outcome, run_id = :run_id, notice = :notice, done_at_us = :at_us,
    reading = CASE WHEN :reading = '' THEN reading ELSE :reading END
WHERE message = :message AND state <> 'done';

-- chat_project --
UPDATE chat
SET project = :project
WHERE id = :chat AND project = '';

-- chat_get --
SELECT n, id, project, title, position, turn, created_at_us
FROM chat
WHERE id = :chat;

-- chat_list --
-- Without the line whose filter is not given.
SELECT n, id, project, title, position, turn, created_at_us
FROM chat
WHERE id NOT GLOB 'run/*'
    AND n < :before
ORDER BY n DESC
LIMIT :limit;

-- principal_put --
INSERT INTO principal (id, kind, name, secret_hash, roles, made_at_us, expires_at_us, used_at_us, revoked_at_us, token)
VALUES (:id, :kind, :called, :secret_hash, :roles, :made_at_us, :expires_at_us, :used_at_us, :revoked_at_us, :token)
ON CONFLICT DO NOTHING;

-- principal_there --
SELECT id
FROM principal
WHERE id = :id AND kind = :kind AND name = :called AND secret_hash = :secret_hash AND roles = :roles AND made_at_us = :made_at_us;

-- principal_find --
-- With the earlier end of it and its token.
SELECT principal.id, principal.kind, principal.name, principal.secret_hash, principal.roles, principal.made_at_us,
    coalesce(min(principal.expires_at_us, owner.expires_at_us), principal.expires_at_us, owner.expires_at_us), principal.used_at_us,
    CASE
        WHEN principal.token IS NOT NULL AND owner.id IS NULL THEN coalesce(principal.revoked_at_us, principal.made_at_us)
        ELSE coalesce(min(principal.revoked_at_us, owner.revoked_at_us), principal.revoked_at_us, owner.revoked_at_us)
    END,
    principal.token
FROM principal
LEFT JOIN principal AS owner ON owner.id = principal.token
WHERE principal.id = :id;

-- principal_read --
SELECT principal.id, principal.kind, principal.name, principal.secret_hash, principal.roles, principal.made_at_us,
    coalesce(min(principal.expires_at_us, owner.expires_at_us), principal.expires_at_us, owner.expires_at_us), principal.used_at_us,
    CASE
        WHEN principal.token IS NOT NULL AND owner.id IS NULL THEN coalesce(principal.revoked_at_us, principal.made_at_us)
        ELSE coalesce(min(principal.revoked_at_us, owner.revoked_at_us), principal.revoked_at_us, owner.revoked_at_us)
    END,
    principal.token
FROM principal
LEFT JOIN principal AS owner ON owner.id = principal.token
WHERE principal.kind IN (SELECT value FROM json_each(:kinds))
ORDER BY principal.made_at_us DESC, principal.id DESC
LIMIT :limit;

-- principal_revoke --
UPDATE principal
SET revoked_at_us = :at_us
WHERE (id = :id OR token = :id) AND revoked_at_us IS NULL
RETURNING id;

-- principal_used --
UPDATE principal
SET used_at_us = :at_us
WHERE id = :id AND kind <> 'code' AND (used_at_us IS NULL OR used_at_us <= :before_us)
RETURNING id;

-- principal_redeem --
UPDATE principal
SET used_at_us = :now_us
WHERE id = :id AND kind = 'code' AND used_at_us IS NULL AND revoked_at_us IS NULL
    AND (expires_at_us IS NULL OR expires_at_us > :now_us)
    AND (token IS NULL OR EXISTS (
        SELECT 1
        FROM principal AS owner
        WHERE owner.id = principal.token AND owner.revoked_at_us IS NULL
            AND (owner.expires_at_us IS NULL OR owner.expires_at_us > :now_us)
    ))
RETURNING id;

-- principal_tidy --
DELETE FROM principal
WHERE id IN (
    SELECT id
    FROM principal
    WHERE kind <> 'token'
        AND (expires_at_us <= :before_us OR revoked_at_us <= :before_us OR (kind = 'code' AND used_at_us <= :before_us))
    LIMIT :limit
)
RETURNING id;

-- audit_begin --
INSERT INTO audit (at_us, asked_by, principal, address, operation, subject, key, on_behalf_of)
VALUES (:at_us, :by, :principal, :address, :operation, :subject, :key, :on_behalf_of)
RETURNING n;

-- audit_finish --
UPDATE audit
SET code = :code, done_at_us = :at_us
WHERE n = :n AND code IS NULL;

-- audit_read --
SELECT n, at_us, asked_by, principal, address, operation, subject, key, on_behalf_of, code, done_at_us
FROM audit
WHERE n < :before
ORDER BY n DESC
LIMIT :limit;

-- audit_tidy --
DELETE FROM audit
WHERE at_us <= :before_us AND n IN (
    SELECT n
    FROM audit
    ORDER BY n
    LIMIT :limit
)
RETURNING n;
