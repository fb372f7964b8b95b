-- migrations_table --
CREATE TABLE IF NOT EXISTS migration (
    number BIGINT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    applied_at_us BIGINT NOT NULL
);

-- migration_newest --
SELECT coalesce(max(number), 0)
FROM migration;

-- migration_insert --
INSERT INTO migration (number, name, applied_at_us)
VALUES (:number, :name, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- identity_get --
SELECT name || '/' || current_database(), unmarked_until_us
FROM identity;

-- run_columns --
{column}

-- run_values --
:{column}::{type}

-- run_arrays --
:{column}::{type}[]

-- changing_columns --
{changing}

-- changing_values --
:{changing}::{type}

-- changing_arrays --
:{changing}::{type}[]

-- run_changes --
{changing} = step.{changing}

-- run_insert --
-- Differs because one statement makes all runs of a group, each with its first events and its append id.
WITH step AS (
    SELECT *
    FROM unnest(
        {run_arrays}, :hash::bytea[], :parent_hash::bytea[], :append_id::text[], :at_us::bigint[]
    ) AS step ({run_columns}, hash, parent_hash, append_id, at_us)
),
{run_inserted};

-- run_insert_alone --
-- For a group of one: no arrays.
WITH step AS (
    SELECT *
    FROM (VALUES (
        {run_values}, :hash::bytea, :parent_hash::bytea, :append_id::text, :at_us::bigint
    )) AS step ({run_columns}, hash, parent_hash, append_id, at_us)
),
{run_inserted};

-- run_inserted --
-- A part: makes the runs of `step`, with their events and append ids.
moved AS (
    INSERT INTO run ({run_columns}, hash, parent_hash, lease_until_us, due_at_us, changed)
    SELECT {run_columns}, hash, parent_hash,
        CASE
            WHEN owner IS NOT NULL
            THEN coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :lease_us
        END,
        coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + wake_at_us - at_us,
        pg_current_xact_id()::text::bigint
    FROM step
    ORDER BY id
    ON CONFLICT (id) DO NOTHING
    RETURNING id
),
{run_written};

-- run_advance --
-- Differs because one statement moves all runs of a group, locked before in the order of their ids, and writes
-- the events of those that moved. Ids and owners are compared such that every plan, even one made while the
-- table was empty, looks each run up by its primary key.
WITH locked AS (
    {run_lock}
),
moved AS (
    UPDATE run
    SET head = step.head, hash = step.hash, next_node = step.next_node, doubtful = step.doubtful,
        steps_finished = step.steps_finished, tokens = step.tokens, cost_micro = step.cost_micro,
        ticks = step.ticks, updated_at_us = step.updated_at_us
    FROM unnest(
        :id::text[], :after::bigint[], :after_hash::bytea[], :held_token::bigint[], :held_owner::text[],
        :head::bigint[], :hash::bytea[], :next_node::text[], :doubtful::text[], :steps_finished::bigint[],
        :tokens::bigint[], :cost_micro::bigint[], :ticks::text[], :updated_at_us::bigint[]
    ) AS step (
        id, after, after_hash, held_token, held_owner, head, hash, next_node, doubtful, steps_finished,
        tokens, cost_micro, ticks, updated_at_us
    )
    WHERE run.id = ANY (ARRAY[step.id]) AND run.head = step.after AND run.hash = step.after_hash
        AND run.token = step.held_token AND run.owner IS NOT DISTINCT FROM step.held_owner
        AND (SELECT count(*) FROM locked) >= 0
    RETURNING run.id
),
event_written AS (
    {event_insert}
)
SELECT id
FROM moved;

-- run_advance_alone --
-- A step in passing, which is most of what is ever written: one run, no arrays, and a row for each event.
WITH moved AS (
    {run_moved}
)
{event_of_moved}
RETURNING run_id;

-- run_moved --
UPDATE run
SET head = :head, hash = :hash, next_node = :next_node, doubtful = :doubtful,
    steps_finished = :steps_finished, tokens = :tokens, cost_micro = :cost_micro, ticks = :ticks,
    updated_at_us = :updated_at_us
WHERE id = :id AND head = :after AND hash = :after_hash AND token = :held_token
    AND owner IS NOT DISTINCT FROM :held_owner
RETURNING id;

-- event_of_moved --
INSERT INTO event (run_id, seq, kind, v, at_us, token, body, hash, refs)
SELECT moved.id, event.*
FROM moved, (VALUES {event_rows}) AS event (seq, kind, v, at_us, token, body, hash, refs);

-- run_reserve_alone --
-- The same for a call that begins and reserves.
WITH moved AS (
    {run_moved}
),
event_written AS (
    {event_of_moved}
),
{reserved}
SELECT id
FROM moved
WHERE (
    {all_charged}
) = 0;

-- run_settle_alone --
-- The same for one that ends.
WITH moved AS (
    {run_moved}
),
event_written AS (
    {event_of_moved}
),
{settled}
SELECT id
FROM moved;

-- run_update --
-- Differs because one statement changes all runs of a group, as run_advance does.
WITH step AS (
    SELECT *
    FROM unnest(
        :id::text[], :after::bigint[], :after_hash::bytea[], :held_token::bigint[], :held_owner::text[],
        {changing_arrays}, :hash::bytea[], :append_id::text[], :at_us::bigint[]
    ) AS step (id, after, after_hash, held_token, held_owner, {changing_columns}, hash, append_id, at_us)
),
locked AS (
    {run_lock}
),
moved AS (
    {run_change}
        AND (SELECT count(*) FROM locked) >= 0
    RETURNING run.id
),
{run_written};

-- run_update_alone --
-- For a group of one: no arrays, and nothing to lock first.
WITH step AS (
    SELECT *
    FROM (VALUES (
        :id::text, :after::bigint, :after_hash::bytea, :held_token::bigint, :held_owner::text,
        {changing_values}, :hash::bytea, :append_id::text, :at_us::bigint
    )) AS step (id, after, after_hash, held_token, held_owner, {changing_columns}, hash, append_id, at_us)
),
moved AS (
    {run_change}
    RETURNING run.id
),
{run_written};

-- run_change --
-- A part: changes the runs of `step` that are where their writers think, under the leases that they have.
UPDATE run
    SET {run_changes}, hash = step.hash,
        lease_until_us = CASE
            WHEN step.owner IS NULL THEN NULL
            WHEN step.token = run.token THEN run.lease_until_us
            ELSE coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :lease_us
        END,
        due_at_us = CASE
            WHEN step.wake_at_us = run.wake_at_us THEN run.due_at_us
            ELSE coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + step.wake_at_us - step.at_us
        END,
        changed = pg_current_xact_id()::text::bigint
    FROM step
    WHERE run.id = ANY (ARRAY[step.id]) AND run.head = step.after AND run.hash = step.after_hash
        AND run.token = step.held_token AND run.owner IS NOT DISTINCT FROM step.held_owner;

-- run_lock --
-- A part: locks all runs of a group, in the order of their ids.
SELECT run.id
    FROM run
    JOIN unnest(:locked::text[]) AS wanted (id) ON run.id = ANY (ARRAY[wanted.id])
    ORDER BY wanted.id COLLATE "C"
    FOR NO KEY UPDATE OF run;

-- run_written --
-- A part: stores the events and append ids of the runs that moved, and answers with these.
event_written AS (
    {event_insert}
),
append_noted AS (
    {append_insert}
)
SELECT id
FROM moved;

-- run_touch --
-- A gate opened or closed while the run went on. Differs because whether the write it came with was refused is known only here.
UPDATE run
SET changed = pg_current_xact_id()::text::bigint
WHERE id = :run_id AND head = :head AND hash = :hash;

-- run_position --
-- Differs because here the row is locked, which in SQLite the whole database is.
SELECT head, hash, status, owner, token,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM run
WHERE id = :id
FOR NO KEY UPDATE;

-- run_holding_key --
SELECT id, owner, token
FROM run
WHERE exclusive_key = :key AND owner IS NOT NULL AND id <> :id;

-- lease_renew --
-- Differs because one statement renews all leases of a process.
WITH held AS (
    {lease_head}
)
UPDATE run
SET lease_until_us = coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :lease_us
FROM held
WHERE run.id = ANY (ARRAY[held.id])
RETURNING run.id, run.head;

-- lease_head --
-- Differs because it is the part of lease_renew that finds the runs still held, and locks them in order.
SELECT run.id, run.head
    FROM run
    JOIN unnest(:id::text[], :owner::text[], :token::bigint[]) AS lease (id, owner, token)
        ON run.id = ANY (ARRAY[lease.id]) AND run.token = lease.token AND run.owner IS NOT DISTINCT FROM lease.owner
    ORDER BY lease.id COLLATE "C"
    FOR NO KEY UPDATE OF run;

-- run_fork --
SELECT parent, parent_seq
FROM run
WHERE id = :id;

-- event_insert --
-- Differs because it is a part of the statements that move a run: only the events of a run that moved.
INSERT INTO event (run_id, seq, kind, v, at_us, token, body, hash, refs)
    SELECT event.*
    FROM unnest(
        :event_run_id::text[], :event_seq::bigint[], :event_kind::text[], :event_v::bigint[],
        :event_at_us::bigint[], :event_token::bigint[], :event_body::text[], :event_hash::bytea[],
        :event_refs::text[]
    ) AS event (run_id, seq, kind, v, at_us, token, body, hash, refs)
    JOIN moved ON moved.id = event.run_id;

-- event_hash --
SELECT hash
FROM event
WHERE run_id = :run_id AND seq = :seq;

-- event_bodies --
SELECT body
FROM event
WHERE run_id = :run_id AND seq <= :upto AND kind = :kind
ORDER BY seq;

-- event_read --
SELECT run_id, seq, kind, v, at_us, token, body, hash, refs
FROM event
WHERE run_id = :run_id AND seq > :after AND seq <= :upto
ORDER BY seq
LIMIT :limit;

-- event_tail --
-- The events that are not in the run's snapshot, so that its row, its snapshot and these are one trip.
SELECT run_id, seq, kind, v, at_us, token, body, hash, refs
FROM event
WHERE run_id = :run_id AND seq > coalesce((
    SELECT seq
    FROM snapshot
    WHERE run_id = :run_id AND fold_version = :fold_version
), 0)
ORDER BY seq
LIMIT :limit;

-- append_find --
SELECT last_seq
FROM append
WHERE run_id = :run_id AND append_id = :append_id;

-- append_insert --
-- Differs because it is a part of the statements that move a run: only for a run that moved. A holder's write
-- has no append id; its last hash is its name.
INSERT INTO append (run_id, append_id, last_seq)
    SELECT step.id, step.append_id, step.head
    FROM step
    JOIN moved ON moved.id = step.id
    WHERE step.append_id IS NOT NULL;

-- snapshot_put --
-- Differs because whether the write it came with was refused is known only here.
INSERT INTO snapshot (run_id, seq, hash, fold_version, body)
SELECT run_id, seq, hash, :fold_version, :body
FROM event
WHERE run_id = :run_id AND seq = :seq AND hash = :hash
ON CONFLICT (run_id) DO UPDATE
SET seq = excluded.seq, hash = excluded.hash, fold_version = excluded.fold_version, body = excluded.body;

-- snapshot_find --
SELECT seq, hash, fold_version, body
FROM snapshot
WHERE run_id = :run_id AND seq <= :seq_max AND fold_version = :fold_version;

-- blob_put --
INSERT INTO blob (hash, encoding, content, touched_at_us)
VALUES (:hash, :encoding, :content, :touched_at_us)
ON CONFLICT (hash) DO UPDATE
SET touched_at_us = excluded.touched_at_us;

-- blob_hold --
-- Differs because each row is locked, so that it is not marked before this transaction ends, and because
-- whether all are there is known only here: if not, it fails with all that was sent with it.
WITH held AS (
    SELECT hash
    FROM blob
    WHERE hash = ANY (:hashes::text[]) AND touched_at_us >= 0
    ORDER BY hash
    FOR SHARE
)
SELECT CASE
    WHEN count(*) = cardinality(:hashes::text[]) THEN 0
    ELSE onward_refuse('ONW02', 'content that was stored before is deleted or about to be: it must be sent again')
END
FROM held;

-- blob_touch --
-- Differs because the names come as an array, and because it fails as blob_hold does.
WITH touched AS (
    UPDATE blob
    SET touched_at_us = :touched_at_us
    WHERE hash = ANY (:hashes::text[])
    RETURNING hash
)
SELECT CASE
    WHEN count(*) = cardinality(:hashes::text[]) THEN 0
    ELSE onward_refuse('ONW02', 'content that an event names is not stored')
END
FROM touched;

-- blob_get --
SELECT encoding, content
FROM blob
WHERE hash = :hash;

-- run_get --
SELECT {run_columns}, hash,
    coalesce(due_at_us, 0) <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
    coalesce(lease_until_us, 0) <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
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
-- Without the lines whose filter is not given. Differs because an index holds the first 200 characters of a name. The
-- rest is compared in a CASE: of two plain comparisons the planner would think that both were rarely true.
-- A list of completed runs has a line of its own only because SQLite needs one.
SELECT {run_columns}, hash,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM run
WHERE true
    AND status = :status
    AND status = :completed
    AND reason = :reason AND reason <> ''
    AND left(pipeline, 200) = left(:pipeline, 200) AND CASE WHEN length(pipeline) >= 200 THEN pipeline = :pipeline ELSE true END
    AND parent = :parent
    AND chat = :chat
    AND tags <> '' AND tags LIKE replace(replace(:tags, '_', '\_'), '*', '%')
    AND created_at_us >= :since_us
    AND (created_at_us, id) < (:before_us, :before_id)
ORDER BY created_at_us DESC, id DESC
LIMIT :limit;

-- run_search --
SELECT *
FROM (
{run_list}
) AS listed
WHERE strpos(id, :text) > 0 OR strpos(display_id, :text) > 0
    OR strpos(lower(pipeline COLLATE "C"), :text) > 0 OR strpos(lower(detail COLLATE "C"), :text) > 0
ORDER BY created_at_us DESC, id DESC
LIMIT :found;

-- run_heads --
-- Differs because the ids come as an array.
SELECT id, head, status, changed, owner, token,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM run
WHERE id = ANY (:ids::text[]);

-- run_change_number --
-- Differs because a change has the number of its transaction: below the oldest that is open, all of them can be read.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1;

-- run_changed --
-- Differs because all runs that were written in one transaction have its number, and come together.
SELECT {run_columns}, hash, changed,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM run
WHERE changed > :after AND changed < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY changed
FETCH FIRST (:limit) ROWS WITH TIES;

-- run_of_chats --
-- Differs because the chats come as an array.
SELECT {run_columns}, hash,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM run
WHERE id IN (
    SELECT (
        SELECT newest.id
        FROM run AS newest
        WHERE newest.chat = wanted.chat AND newest.managed_by IS NULL
            AND strpos(newest.tags, ' onward-reading ') = 0
        ORDER BY newest.created_at_us DESC, newest.id DESC
        LIMIT 1
    )
    FROM unnest(:chats::text[]) AS wanted (chat)
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
SELECT parent.id, child.id
FROM (
    SELECT id, updated_at_us
    FROM run
    WHERE status = 'waiting'
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
-- Differs because whether the write it came with was refused is known only here.
INSERT INTO gate (
    run_id, gate, gate_hash, pipeline, node, text, about, type, choices, opened_at_us, deadline_us, decided_by,
    closed_at_us
)
SELECT id, :gate::text, :gate_hash::text, :pipeline::text, :node::text, :text::text, :about::text,
    :type::text, :choices::text,
    :opened_at_us::bigint, :deadline_us::bigint, :decided_by::text, :closed_at_us::bigint
FROM run
WHERE id = :run_id AND head = :head AND hash = :hash
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
SELECT kinds, wanted_until_us - coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM subscriber
WHERE name = :subscriber;

-- subscriber_put --
INSERT INTO subscriber (name, kinds, wanted_until_us)
VALUES (:subscriber, :kinds, coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :for_us::bigint)
ON CONFLICT (name) DO UPDATE
SET kinds = excluded.kinds, wanted_until_us = excluded.wanted_until_us;

-- subscriber_any --
-- Differs because to ask first would be a trip of its own: if somebody has subscribed, it fails with all that was sent with it.
SELECT CASE
    WHEN EXISTS (
        SELECT
        FROM subscriber
        WHERE wanted_until_us > coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    )
    THEN onward_refuse('ONW03', 'somebody has subscribed to notifications, and this write came without them')
    ELSE 0
END;

-- outbox_put --
-- Differs because whether the write it came with was refused is known only here, and one statement stores the
-- notifications of a group.
INSERT INTO outbox (id, subscriber, run_id, seq, kind, body, created_at_us, state, token, tries, due_at_us, tried_at_us,
    delivered_at_us, response, error)
SELECT told.id, subscriber.name, told.run_id, told.seq, told.kind, told.body, told.at_us, 'waiting', 0, 0,
    coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), NULL, NULL, NULL, ''
FROM subscriber
CROSS JOIN unnest(
    :id::text[], :run_id::text[], :seq::bigint[], :kind::text[], :at_us::bigint[], :body::text[],
    :head::bigint[], :hash::bytea[]
) AS told (id, run_id, seq, kind, at_us, body, head, hash)
JOIN run ON run.id = ANY (ARRAY[told.run_id]) AND run.head = told.head AND run.hash = told.hash
WHERE strpos(subscriber.kinds, ' ' || told.kind || ' ') > 0
    AND subscriber.wanted_until_us > coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ON CONFLICT (id, subscriber) DO NOTHING;

-- outbox_due --
-- Differs because it is a part of outbox_claim, and those that somebody else is about to take are passed over.
SELECT id, subscriber
FROM outbox
WHERE subscriber = :subscriber AND state = 'waiting' AND state <> 'delivered'
    AND due_at_us <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ORDER BY due_at_us, created_at_us, id
LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED;

-- outbox_claim --
WITH due AS (
    {outbox_due}
)
UPDATE outbox
SET token = outbox.token + 1, tries = outbox.tries + 1, tried_at_us = coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
    due_at_us = coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :lease_us
FROM due
WHERE outbox.id = due.id AND outbox.subscriber = due.subscriber
RETURNING outbox.id, outbox.subscriber, outbox.run_id, outbox.seq, outbox.kind, outbox.body, outbox.created_at_us,
    outbox.state, outbox.token, outbox.tries, outbox.due_at_us, outbox.tried_at_us, outbox.delivered_at_us,
    outbox.response, outbox.error;

-- outbox_record --
UPDATE outbox
SET state = :state::text, response = :response::bigint, error = :error,
    due_at_us = coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :wait_us::bigint,
    delivered_at_us = CASE WHEN :state::text = 'delivered' THEN coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) END
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
SET state = 'waiting', tries = 0, due_at_us = coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), delivered_at_us = NULL
WHERE id = :id
RETURNING id, subscriber, run_id, seq, kind, body, created_at_us, state, token, tries, due_at_us, tried_at_us,
    delivered_at_us, response, error;

-- place_lock --
-- Differs because here the rows are locked, in the order of their ids, which in SQLite the whole database is.
SELECT id, head, hash, owner, token
FROM run
WHERE id = ANY(:ids::text[])
ORDER BY id
FOR NO KEY UPDATE;

-- reservation_find --
-- Differs because the keys come as arrays.
SELECT run_id, step, call, try, token, scopes, model, reserved_tokens, reserved_cost_micro, reserved_calls, state,
    charged_tokens, charged_cost_micro, charged_calls, is_estimated
FROM reservation
WHERE (run_id, call_hash) IN (SELECT * FROM unnest(:run_ids::text[], :call_hashes::text[]))
    AND state = 'open';

-- scope_lock --
-- Differs because the rows are locked, in the order of their ids, after the runs whose reservations they are. A check
-- inside the statement that waits would see the scopes as they were before the wait.
SELECT scope.id, scope.max_tokens, scope.max_cost_micro, scope.max_calls,
    kind.max_tokens, kind.max_cost_micro, kind.max_calls,
    scope.spent_tokens, scope.spent_cost_micro, scope.spent_calls,
    scope.reserved_tokens, scope.reserved_cost_micro, scope.reserved_calls, scope.warned
FROM scope
LEFT JOIN scope AS kind ON kind.id = scope.kind
WHERE scope.id IN (
    SELECT unnest(:ids::text[])
    UNION
    SELECT unnest(string_to_array(scopes, E'\n'))
    FROM reservation
    WHERE (run_id, call_hash) IN (SELECT * FROM unnest(:run_ids::text[], :call_hashes::text[])) AND state = 'open'
)
ORDER BY scope.id
FOR NO KEY UPDATE OF scope;

-- scope_make --
-- Differs because the ids come as arrays, in their order; the row is made before it is locked, in a transaction of its own.
INSERT INTO scope (id, kind)
SELECT id, kind
FROM unnest(:ids::text[], :kinds::text[]) AS made (id, kind)
ORDER BY id
ON CONFLICT (id) DO NOTHING;

-- scope_charge --
UPDATE scope
SET spent_tokens = :spent_tokens, spent_cost_micro = :spent_cost_micro, spent_calls = :spent_calls,
    reserved_tokens = :reserved_tokens, reserved_cost_micro = :reserved_cost_micro, reserved_calls = :reserved_calls,
    warned = :warned
WHERE id = :id;

-- scope_reserve --
-- One call that begins, in the trip of its events and behind them. Each scope is judged by its row once that is locked, in
-- the order of `ids`. If one is missing or has no room, or if the events were not written, it fails with all that was sent
-- with it.
WITH moved AS (
    {run_there}
),
{reserved}
{all_charged};

-- scope_settle --
-- One call that ends, as scope_reserve for one that begins. It fails if a limit is nearly spent, and nobody was told so.
WITH moved AS (
    {run_there}
),
{settled}
SELECT id
FROM moved;

-- run_there --
SELECT id
FROM run
WHERE id = :id AND head = :head AND hash = :hash;

-- reserved --
made AS (
    INSERT INTO reservation (run_id, call_hash, step, call, try, token, scopes, model, reserved_tokens, reserved_cost_micro,
        reserved_calls, state, charged_tokens, charged_cost_micro, charged_calls, is_estimated)
    SELECT id, :call_hash::text, :step::text, :call::text, :number::bigint, :token::bigint, :scopes::text, :model::text,
        :reserved_tokens::bigint, :reserved_cost_micro::bigint, :reserved_calls::bigint, 'open', 0, 0, 0, 0
    FROM moved
    RETURNING run_id
),
charged AS (
    UPDATE scope
    SET reserved_tokens = LEAST(scope.reserved_tokens, {amount_max}) + :reserved_tokens,
        reserved_cost_micro = LEAST(scope.reserved_cost_micro, {amount_max}) + :reserved_cost_micro,
        reserved_calls = LEAST(scope.reserved_calls, {amount_max}) + :reserved_calls + CASE
            WHEN (coalesce(scope.max_tokens, kind.max_tokens, 0) = 0 OR scope.spent_tokens + scope.reserved_tokens
                + :reserved_tokens <= coalesce(scope.max_tokens, kind.max_tokens))
            AND (coalesce(scope.max_cost_micro, kind.max_cost_micro, 0) = 0 OR :is_priced::bigint = 1
                AND scope.spent_cost_micro + scope.reserved_cost_micro
                + :reserved_cost_micro <= coalesce(scope.max_cost_micro, kind.max_cost_micro))
            AND (coalesce(scope.max_calls, kind.max_calls, 0) = 0 OR scope.spent_calls + scope.reserved_calls
                + :reserved_calls <= coalesce(scope.max_calls, kind.max_calls))
            THEN 0
            ELSE onward_refuse('ONW01', 'a limit has no room for what a call reserves')
        END
    FROM made
    CROSS JOIN unnest(:ids::text[], :kinds::text[]) AS wanted (id, kind)
    LEFT JOIN scope AS kind ON kind.id = ANY (ARRAY[wanted.kind])
    WHERE scope.id = ANY (ARRAY[wanted.id])
    RETURNING scope.id
);

-- all_charged --
-- A part: fails unless `charged` has every scope of the call.
SELECT CASE
    WHEN count(*) = cardinality(:ids) THEN 0
    ELSE onward_refuse('ONW01', 'a scope that a call counts in is new, or the events of the call were not written')
END
FROM charged;

-- settled --
settled AS (
    UPDATE reservation
    SET state = 'settled', charged_tokens = :charged_tokens, charged_cost_micro = :charged_cost_micro,
        charged_calls = :charged_calls, is_estimated = :is_estimated
    FROM moved
    WHERE reservation.run_id = moved.id AND reservation.call_hash = :call_hash AND reservation.state <> 'settled'
    RETURNING reservation.run_id
),
used AS (
    INSERT INTO usage (key_hash, day, project, chat, run_id, pipeline, model, input, output, cached, tokens, cost_micro,
        calls, estimated)
    SELECT :key_hash::text, :day::text, :project::text, :chat::text, run_id, :pipeline::text, :model::text, :input::bigint,
        :output::bigint, :cached::bigint, :charged_tokens, :charged_cost_micro, :charged_calls, :is_estimated
    FROM settled
    ON CONFLICT (key_hash) DO UPDATE
    SET input = LEAST(usage.input, {amount_max}) + excluded.input, output = LEAST(usage.output, {amount_max}) + excluded.output,
        cached = LEAST(usage.cached, {amount_max}) + excluded.cached, tokens = LEAST(usage.tokens, {amount_max}) + excluded.tokens,
        cost_micro = LEAST(usage.cost_micro, {amount_max}) + excluded.cost_micro,
        calls = LEAST(usage.calls, {amount_max}) + excluded.calls,
        estimated = LEAST(usage.estimated, {amount_max}) + excluded.estimated
),
charged AS (
    UPDATE scope
    SET spent_tokens = LEAST(scope.spent_tokens, {amount_max}) + :charged_tokens,
        spent_cost_micro = LEAST(scope.spent_cost_micro, {amount_max}) + :charged_cost_micro,
        spent_calls = LEAST(scope.spent_calls, {amount_max}) + :charged_calls,
        reserved_tokens = GREATEST(scope.reserved_tokens - :reserved_tokens, 0),
        reserved_cost_micro = GREATEST(scope.reserved_cost_micro - :reserved_cost_micro, 0),
        reserved_calls = GREATEST(scope.reserved_calls - :reserved_calls, 0) + CASE
            WHEN coalesce(scope.max_tokens, kind.max_tokens, 0) > 0 AND (scope.spent_tokens + :charged_tokens) * 100
                >= coalesce(scope.max_tokens, kind.max_tokens) * :warn_percent::bigint
                AND NOT 'tokens' = ANY (string_to_array(scope.warned, ' '))
            OR coalesce(scope.max_cost_micro, kind.max_cost_micro, 0) > 0
                AND (scope.spent_cost_micro + :charged_cost_micro) * 100
                >= coalesce(scope.max_cost_micro, kind.max_cost_micro) * :warn_percent
                AND NOT 'cost' = ANY (string_to_array(scope.warned, ' '))
            OR coalesce(scope.max_calls, kind.max_calls, 0) > 0 AND (scope.spent_calls + :charged_calls) * 100
                >= coalesce(scope.max_calls, kind.max_calls) * :warn_percent
                AND NOT 'calls' = ANY (string_to_array(scope.warned, ' '))
            THEN onward_refuse('ONW01', 'a call nearly spends a limit, and nobody was told so')
            ELSE 0
        END
    FROM settled
    CROSS JOIN unnest(:ids::text[], :kinds::text[]) AS wanted (id, kind)
    LEFT JOIN scope AS kind ON kind.id = ANY (ARRAY[wanted.kind])
    WHERE scope.id = ANY (ARRAY[wanted.id])
);

-- scope_limit --
UPDATE scope
SET max_tokens = :max_tokens, max_cost_micro = :max_cost_micro, max_calls = :max_calls, warned = :warned
WHERE id = :id;

-- scope_find --
-- Differs because the ids come as an array.
SELECT scope.id, scope.max_tokens, scope.max_cost_micro, scope.max_calls,
    kind.max_tokens, kind.max_cost_micro, kind.max_calls,
    scope.spent_tokens, scope.spent_cost_micro, scope.spent_calls,
    scope.reserved_tokens, scope.reserved_cost_micro, scope.reserved_calls, scope.warned
FROM scope
LEFT JOIN scope AS kind ON kind.id = scope.kind
WHERE scope.id = ANY(:ids::text[]);

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
WHERE id = 'run/' || :id::text AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = :id);

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
    coalesce(lease_until_us, 0) <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM reservation
JOIN run ON run.id = reservation.run_id
WHERE reservation.state = 'open';

-- usage_add --
INSERT INTO usage (key_hash, day, project, chat, run_id, pipeline, model, input, output, cached, tokens, cost_micro, calls,
    estimated)
VALUES (:key_hash, :day, :project, :chat, :run_id, :pipeline, :model, :input, :output, :cached, :tokens, :cost_micro, :calls,
    :estimated)
ON CONFLICT (key_hash) DO UPDATE
SET input = LEAST(usage.input, {amount_max}) + excluded.input, output = LEAST(usage.output, {amount_max}) + excluded.output,
    cached = LEAST(usage.cached, {amount_max}) + excluded.cached, tokens = LEAST(usage.tokens, {amount_max}) + excluded.tokens,
    cost_micro = LEAST(usage.cost_micro, {amount_max}) + excluded.cost_micro,
    calls = LEAST(usage.calls, {amount_max}) + excluded.calls,
    estimated = LEAST(usage.estimated, {amount_max}) + excluded.estimated;

-- usage_list --
-- The column that it is put together by is filled in.
SELECT {what}, LEAST(sum(input), {amount_max})::bigint, LEAST(sum(output), {amount_max})::bigint,
    LEAST(sum(cached), {amount_max})::bigint, LEAST(sum(tokens), {amount_max})::bigint,
    LEAST(sum(cost_micro), {amount_max})::bigint, LEAST(sum(calls), {amount_max})::bigint,
    LEAST(sum(estimated), {amount_max})::bigint
FROM usage
GROUP BY {what}
ORDER BY CASE WHEN :by::text = 'day' THEN {what} ELSE '' END DESC, 6 DESC, 5 DESC, {what}
LIMIT :limit;

-- backfill_read --
SELECT run_id
FROM backfill
ORDER BY run_id;

-- backfill_run --
UPDATE run
SET doubtful = :doubtful, tokens = :tokens, cost_micro = :cost_micro, ticks = :ticks
WHERE id = :run_id AND head = :head AND hash = :hash
RETURNING id;

-- backfill_delete --
DELETE FROM backfill
WHERE run_id = :run_id;

-- run_due --
-- Differs because runs that somebody else is about to take are passed over.
SELECT id, pipeline, max_running
FROM run
WHERE due_at_us IS NOT NULL AND due_at_us <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    AND id <> ALL (:skipped::text[])
    AND needs <> ALL (:unserved::text[])
    AND pipeline <> ALL (:full::text[])
    AND NOT EXISTS (
        SELECT 1
        FROM run AS other
        WHERE other.exclusive_key = run.exclusive_key AND other.owner IS NOT NULL
    )
ORDER BY priority DESC, due_at_us, id
LIMIT 1
FOR NO KEY UPDATE OF run SKIP LOCKED;

-- ceiling_lock --
INSERT INTO ceiling (pipeline)
VALUES (:pipeline)
ON CONFLICT (pipeline) DO UPDATE SET pipeline = excluded.pipeline;

-- ceiling_used --
-- Only running runs are held; said in both ways, whichever index is used has no others in it.
SELECT count(*)
FROM run
WHERE pipeline = :pipeline AND owner IS NOT NULL AND status = 'running';

-- run_held --
-- In no order: one by the id could be had by reading every run there ever was, and some plans would.
SELECT {run_columns}, hash,
    coalesce(lease_until_us, 0) <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM run
WHERE owner IS NOT NULL;

-- control_notify --
SELECT pg_notify('onward_control', :run_id)::text;

-- due_notify --
SELECT pg_notify('onward_due', '')::text;

-- run_count --
SELECT status, count(*)
FROM run
GROUP BY status;

-- measure_now --
SELECT coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- measure_reasons --
SELECT status, reason, recoverable, count(*)
FROM run
WHERE reason <> ''
GROUP BY status, reason, recoverable;

-- measure_queue --
SELECT due_at_us <= :now_us::bigint AS is_due, count(*), min(due_at_us)
FROM run
WHERE due_at_us IS NOT NULL
GROUP BY is_due;

-- measure_holders --
SELECT owner, coalesce(lease_until_us, 0) <= :now_us::bigint AS is_expired, count(*)
FROM run
WHERE owner IS NOT NULL
GROUP BY owner, is_expired;

-- measure_ended --
SELECT status, count(*) FILTER (WHERE ended_at_us >= :hour_us), count(*)
FROM run
WHERE ended_at_us IS NOT NULL AND ended_at_us >= :day_us
GROUP BY status;

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
    WHERE due_at_us IS NOT NULL AND due_at_us <= :now_us::bigint
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
SELECT id, head, 1, coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), :why
FROM run
WHERE id = :run_id
ON CONFLICT (run_id) DO UPDATE
SET failures = CASE WHEN stuck.head = excluded.head THEN stuck.failures + 1 ELSE 1 END,
    head = excluded.head, failed_at_us = excluded.failed_at_us, why = excluded.why;

-- worker_put --
INSERT INTO worker (owner, handlers, lacks, concurrency, started_at_us, lease_until_us)
VALUES (:owner, :handlers, :lacks, :concurrency, coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :lease_us)
ON CONFLICT (owner) DO UPDATE
SET handlers = excluded.handlers, lacks = excluded.lacks, concurrency = excluded.concurrency,
    lease_until_us = excluded.lease_until_us;

-- worker_leave --
DELETE FROM worker
WHERE owner = :owner;

-- worker_read --
SELECT owner, handlers, lacks, concurrency, started_at_us, lease_until_us, lease_until_us <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM worker
ORDER BY started_at_us, owner;

-- worker_remove --
DELETE FROM worker
WHERE owner = :owner AND lease_until_us = :lease_until_us
RETURNING owner;

-- effect_begin --
INSERT INTO effect (key, state, token, owner, lease_until_us, begun_at_us)
VALUES (:key, 'begun', :token, :owner, coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :lease_us, :at_us)
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
SET lease_until_us = coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :lease_us
WHERE key = :key AND token = :token AND state = 'begun'
RETURNING key;

-- effect_forget --
DELETE FROM effect
WHERE key = :key AND token = :token;

-- effect_find --
SELECT key, token, owner, begun_at_us, finished_at_us, result, lease_until_us <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM effect
WHERE key = :key;

-- effect_read --
SELECT key, token, owner, begun_at_us, finished_at_us, result, lease_until_us <= coalesce(:now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM effect
WHERE key >= :first AND key < :behind
ORDER BY key
LIMIT :limit;

-- run_expired --
-- Differs because the statuses come as an array.
SELECT id, head, status, parent, restarted_as, managed_by, restart_of
FROM (
    SELECT *
    FROM run
    WHERE status = ANY (:statuses::text[])
    ORDER BY created_at_us DESC, id DESC
    OFFSET :keep
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
-- Differs because the ids come as an array.
SELECT id
FROM run
WHERE id = ANY (:ids::text[]);

-- blob_unused --
SELECT hash
FROM blob
WHERE touched_at_us < :before_us
EXCEPT
SELECT pipeline_hash COLLATE "C"
FROM run
EXCEPT
SELECT ltrim(ref.value, '~') COLLATE "C"
FROM event, unnest(string_to_array(event.refs, ' ')) AS ref (value)
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
SELECT (body::json ->> 'before') COLLATE "C"
FROM event
WHERE kind = 'PipelineChanged'
LIMIT :limit;

-- blob_mark --
-- Differs because the names come as an array, and because those that a writer holds are passed over.
UPDATE blob
SET touched_at_us = :mark
WHERE hash IN (
    SELECT hash
    FROM blob
    WHERE hash = ANY (:hashes::text[]) AND touched_at_us < :before_us
    ORDER BY hash
    FOR NO KEY UPDATE SKIP LOCKED
);

-- blob_delete --
DELETE FROM blob
WHERE hash = :hash AND touched_at_us = :mark
RETURNING length(content);

-- event_receive --
-- Differs because the events come as arrays.
INSERT INTO event (run_id, seq, kind, v, at_us, token, body, hash, refs)
SELECT *
FROM unnest(
    :event_run_id::text[], :event_seq::bigint[], :event_kind::text[], :event_v::bigint[],
    :event_at_us::bigint[], :event_token::bigint[], :event_body::text[], :event_hash::bytea[],
    :event_refs::text[]
)
ON CONFLICT (run_id, seq) DO NOTHING;

-- effect_receive --
INSERT INTO effect (key, state, token, owner, lease_until_us, result, begun_at_us, finished_at_us)
VALUES (:key, :state, :token, :owner, 0, :result, :begun_at_us, :finished_at_us)
ON CONFLICT (key) DO NOTHING;

-- chat_put --
-- Differs because whether the writes they come with were refused is known only here, and so that no two
-- transactions wait for each other's new chats.
INSERT INTO chat (id, created_at_us)
SELECT begun.chat, min(begun.at_us)
FROM unnest(:chat::text[], :at_us::bigint[], :run_id::text[], :head::bigint[], :hash::bytea[])
    AS begun (chat, at_us, run_id, head, hash)
JOIN run ON run.id = ANY (ARRAY[begun.run_id]) AND run.head = begun.head AND run.hash = begun.hash
GROUP BY begun.chat
ORDER BY begun.chat COLLATE "C"
ON CONFLICT (id) DO NOTHING;

-- chat_lock --
-- The chats in which these writes begin and end messages, in the order of their ids.
SELECT chat.n
FROM chat
WHERE chat.n IN (
    SELECT chat.n
    FROM chat
    WHERE chat.id = ANY (:chats::text[])
    UNION
    SELECT message.chat
    FROM message
    WHERE message.run_id = ANY (:ending::text[]) AND message.state = 'streaming'
)
ORDER BY chat.id
FOR NO KEY UPDATE OF chat;

-- message_begin --
-- Differs because whether the write it came with was refused is known only here.
WITH begun AS (
    INSERT INTO message (
        id, chat, run_id, step, call, try, role, state, token, next_index, first_position, model, begun_at_us,
        changed_at_us
    )
    SELECT :id::text, chat.n, run.id, :step::text, :call::text, :number::bigint, 'assistant', 'streaming',
        :token::bigint, 1, chat.position + 1, :model::text, :at_us::bigint, :at_us::bigint
    FROM run
    CROSS JOIN chat
    WHERE run.id = :run_id AND run.head = :head AND run.hash = :hash AND chat.id = :chat
    ON CONFLICT (id) DO NOTHING
    RETURNING chat, first_position AS position, n, 0::bigint AS "index"
),
moved AS (
    {chat_moved}
)
INSERT INTO chunk (chat, position, message, "index", kind, text)
SELECT begun.chat, begun.position, begun.n, begun."index", 'start', 'assistant'
FROM begun;

-- message_end --
-- Differs because whether the write it came with was refused is known only here.
WITH begun AS (
    UPDATE message
    SET state = :state::text, next_index = message.next_index + 1, ended_at_us = :at_us::bigint,
        changed_at_us = :at_us::bigint, last_position = chat.position + 1,
        model = CASE WHEN :model::text = '' THEN message.model ELSE :model::text END,
        content = :content::text
    FROM run
    CROSS JOIN chat
    WHERE run.id = :run_id AND run.head = :head AND run.hash = :hash AND message.run_id = :run_id
        AND message.state = 'streaming' AND message.step = :step AND message.call = :call
        AND message.try = :number AND chat.n = message.chat
    RETURNING message.chat, message.last_position AS position, message.n, message.next_index - 1 AS "index"
),
moved AS (
    {chat_moved}
)
INSERT INTO chunk (chat, position, message, "index", kind, text)
SELECT begun.chat, begun.position, begun.n, begun."index", 'end', :state::text
FROM begun;

-- chat_moved --
-- A part: the chat of a message that begins or ends has one more chunk.
UPDATE chat
    SET position = begun.position
    FROM begun
    WHERE chat.n = begun.chat;

-- message_lock --
-- Differs because here each chat is locked, and one that is locked by others is passed over. A message changes only
-- under the lock of its chat, and locking it reads it as it is then.
WITH free AS MATERIALIZED (
    SELECT chat.n, chat.position
    FROM chat
    WHERE chat.id = ANY (:chats::text[])
    ORDER BY chat.id
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT message.id, message.n, message.run_id, message.state, message.token, message.next_index, free.n,
    free.position
FROM free
JOIN message ON message.chat = free.n
WHERE message.id = ANY (:ids::text[])
ORDER BY message.id
FOR NO KEY UPDATE OF message;

-- message_look --
-- As they are without a lock: what has ended stays so.
SELECT message.id, message.run_id, message.state, message.token
FROM message
WHERE message.id = ANY (:ids::text[]);

-- chunk_insert --
-- Differs because the chunks come as arrays.
INSERT INTO chunk (chat, position, message, "index", kind, text)
SELECT *
FROM unnest(
    :chat::bigint[], :position::bigint[], :message::bigint[], :index::bigint[], :kind::text[], :text::text[]
);

-- message_move --
-- Differs because the messages come as arrays.
UPDATE message
SET next_index = moved.next_index, changed_at_us = :at_us
FROM unnest(:n::bigint[], :next_index::bigint[]) AS moved (n, next_index)
WHERE message.n = ANY (ARRAY[moved.n]);

-- chat_move --
-- Differs because the chats come as arrays.
UPDATE chat
SET position = moved.position
FROM unnest(:n::bigint[], :position::bigint[]) AS moved (n, position)
WHERE chat.n = ANY (ARRAY[moved.n]);

-- chat_positions --
-- Differs because the names come as an array.
SELECT id, position
FROM chat
WHERE id = ANY (:chats::text[]);

-- message_unsealed --
-- Differs because those that somebody else is about to seal are passed over.
SELECT n
FROM message
WHERE state <> 'streaming' AND content IS NULL
ORDER BY n
LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED;

-- message_untidied --
-- Differs as message_unsealed does.
SELECT n, chat, first_position, last_position
FROM message
WHERE content IS NOT NULL AND is_tidied = 0 AND ended_at_us < :before_us
ORDER BY ended_at_us
LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED;

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
-- Differs because the ids come as an array.
SELECT message.id, message.n, message.content
FROM message
WHERE message.id = ANY (:ids::text[]);

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
-- Differs because the ids come as an array.
SELECT message.id, chat.id, message.run_id, message.step, message.call, message.try, message.role, message.state,
    message.model, message.begun_at_us, message.changed_at_us, message.ended_at_us, message.first_position, message.last_position,
    message.content, message.is_tidied
FROM message
JOIN chat ON chat.n = message.chat
WHERE message.id = ANY (:ids::text[])
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
-- Differs because it moves the chat, too.
WITH begun AS (
    INSERT INTO message (
        id, chat, run_id, step, call, try, role, state, token, next_index, first_position, last_position, model, content,
        begun_at_us, changed_at_us, ended_at_us, is_tidied
    )
    SELECT :id::text, chat.n, :run_id::text, :step::text, :call::text, :number::bigint, :role::text, :state::text, 0, 1,
        chat.position + 1, chat.position + 1, :model::text, :content::text, :begun_at_us::bigint, :changed_at_us::bigint,
        :ended_at_us::bigint, 1
    FROM chat
    WHERE chat.id = :chat
    ON CONFLICT (id) DO NOTHING
    RETURNING chat, last_position AS position
)
{chat_moved};

-- chat_receive --
-- So that no two transactions wait for each other's new chats.
INSERT INTO chat (id, created_at_us)
SELECT DISTINCT ON (said.chat COLLATE "C") said.chat, said.at_us
FROM unnest(:chat::text[], :at_us::bigint[]) AS said (chat, at_us)
ORDER BY said.chat COLLATE "C", said.at_us
ON CONFLICT (id) DO NOTHING;

-- pipeline_make --
-- Locks the name that is there, so that its versions are counted by one process at a time.
INSERT INTO pipeline (name, enabled, changed_by, changed_at_us)
VALUES (:pipeline, NULL, :by, :at_us)
ON CONFLICT (name) DO UPDATE
SET name = excluded.name;

-- pipeline_add --
INSERT INTO pipeline_version (name, version, hash, file, added_by, added_at_us)
SELECT :pipeline::text, coalesce(max(version), 0) + 1, :hash::text, :file::text, :by::text, :at_us::bigint
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
    AND (enabled IS NULL OR (:enables::bigint = 1 AND enabled <> added.version));

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
-- Differs because the chats come as an array.
SELECT chat, count(*)
FROM intake
WHERE chat = ANY (:chats::text[]) AND state <> 'done'
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
            AND (strpos(run.tags, ' onward-reading ') = 0 OR run.status IN ('queued', 'running'))
    )
ORDER BY n
LIMIT :limit;

-- intake_note --
UPDATE intake
SET behind = :behind, reading = :reading
WHERE message = :message AND state = 'pending' AND reading = :seen
RETURNING n;

-- intake_begin --
-- Differs because the chat's row is locked first: whoever waits for it looks at its turn again.
WITH taken AS (
    UPDATE chat
    SET turn = chat.turn + 1
    FROM intake
    WHERE intake.message = :message AND intake.state = 'pending' AND intake.reading = :seen AND chat.id = intake.chat
        AND chat.turn = :turn
    RETURNING chat.id
)
UPDATE intake
SET state = 'starting', run_id = :run_id, reading = :reading
FROM taken
WHERE intake.message = :message AND intake.state = 'pending' AND intake.reading = :seen
RETURNING intake.n;

-- intake_settle --
UPDATE intake
SET state = 'done', outcome = :outcome, run_id = :run_id, notice = :notice, done_at_us = :at_us,
    reading = CASE WHEN :reading::text = '' THEN reading ELSE :reading::text END
WHERE message = :message AND state <> 'done'
RETURNING n;

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
WHERE id NOT LIKE 'run/%'
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
    least(principal.expires_at_us, owner.expires_at_us), principal.used_at_us,
    CASE
        WHEN principal.token IS NOT NULL AND owner.id IS NULL THEN coalesce(principal.revoked_at_us, principal.made_at_us)
        ELSE least(principal.revoked_at_us, owner.revoked_at_us)
    END,
    principal.token
FROM principal
LEFT JOIN principal AS owner ON owner.id = principal.token
WHERE principal.id = :id;

-- principal_read --
-- Differs because the kinds come as an array.
SELECT principal.id, principal.kind, principal.name, principal.secret_hash, principal.roles, principal.made_at_us,
    least(principal.expires_at_us, owner.expires_at_us), principal.used_at_us,
    CASE
        WHEN principal.token IS NOT NULL AND owner.id IS NULL THEN coalesce(principal.revoked_at_us, principal.made_at_us)
        ELSE least(principal.revoked_at_us, owner.revoked_at_us)
    END,
    principal.token
FROM principal
LEFT JOIN principal AS owner ON owner.id = principal.token
WHERE principal.kind = ANY (:kinds::text[])
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
-- Differs because rows that another server removes just now are passed over. An array is read once; a join would
-- read the rows again, and remove more than the limit.
DELETE FROM principal
WHERE id = ANY (ARRAY(
    SELECT id
    FROM principal
    WHERE kind <> 'token'
        AND (expires_at_us <= :before_us OR revoked_at_us <= :before_us OR (kind = 'code' AND used_at_us <= :before_us))
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
))
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
-- Differs because rows that another server removes just now are passed over.
DELETE FROM audit
WHERE at_us <= :before_us AND n IN (
    SELECT n
    FROM audit
    ORDER BY n
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING n;
