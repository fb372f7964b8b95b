-- Needs no holders: an older one would not count what its steps spend.
-- What lists show of a run without its log: the tokens and the cost of its calls, and its steps in signs.
ALTER TABLE run
    ADD COLUMN tokens tally NOT NULL DEFAULT 0,
    ADD COLUMN cost_micro tally NOT NULL DEFAULT 0,
    ADD COLUMN ticks TEXT NOT NULL DEFAULT '';

-- A run that is over keeps its row, so its calls are added up here; the others are filled in from their logs. A body
-- that was damaged says nothing.
CREATE FUNCTION pg_temp.call_body(body TEXT) RETURNS JSON LANGUAGE plpgsql AS $$
BEGIN
    RETURN replace(body, '\u0000', '\u0020')::json;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;
CREATE FUNCTION pg_temp.amount(value TEXT) RETURNS NUMERIC LANGUAGE plpgsql AS $$
BEGIN
    RETURN greatest(0, coalesce(value::numeric, 0));
EXCEPTION WHEN OTHERS THEN
    RETURN 0;
END
$$;
UPDATE run
SET tokens = spent.tokens, cost_micro = spent.cost_micro
FROM (
    SELECT run_id,
        sum(pg_temp.amount(body -> 'usage' ->> 'input') + pg_temp.amount(body -> 'usage' ->> 'output')) AS tokens,
        sum(pg_temp.amount(body ->> 'cost_micro')) AS cost_micro
    FROM (SELECT run_id, pg_temp.call_body(body) AS body FROM event WHERE kind = 'CallFinished') AS call
    GROUP BY run_id
) AS spent
WHERE spent.run_id = run.id AND run.status IN ('completed', 'cancelled')
    AND spent.tokens <= 1000000000000000 AND spent.cost_micro <= 1000000000000000;
DROP FUNCTION pg_temp.call_body(TEXT);
DROP FUNCTION pg_temp.amount(TEXT);
INSERT INTO backfill (run_id)
SELECT id
FROM run
WHERE status NOT IN ('completed', 'cancelled')
ON CONFLICT DO NOTHING;
