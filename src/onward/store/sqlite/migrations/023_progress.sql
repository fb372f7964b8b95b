-- Needs no holders: an older one would not count what its steps spend.
-- What lists show of a run without its log: the tokens and the cost of its calls, and its steps in signs.
ALTER TABLE run ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0 CHECK (tokens >= 0);
ALTER TABLE run ADD COLUMN cost_micro INTEGER NOT NULL DEFAULT 0 CHECK (cost_micro >= 0);
ALTER TABLE run ADD COLUMN ticks TEXT NOT NULL DEFAULT '';

-- A run that is over keeps its row, so its calls are added up here; the others are filled in from their logs.
UPDATE run
SET tokens = spent.tokens, cost_micro = spent.cost_micro
FROM (
    SELECT run_id,
        sum(max(0, coalesce(json_extract(body, '$.usage.input'), 0))
            + max(0, coalesce(json_extract(body, '$.usage.output'), 0))) AS tokens,
        sum(max(0, coalesce(json_extract(body, '$.cost_micro'), 0))) AS cost_micro
    FROM event
    WHERE kind = 'CallFinished' AND json_valid(body)
    GROUP BY run_id
) AS spent
WHERE spent.run_id = run.id AND run.status IN ('completed', 'cancelled')
    AND spent.tokens BETWEEN 0 AND 1000000000000000 AND spent.cost_micro BETWEEN 0 AND 1000000000000000;
INSERT OR IGNORE INTO backfill (run_id)
SELECT id
FROM run
WHERE status NOT IN ('completed', 'cancelled');
