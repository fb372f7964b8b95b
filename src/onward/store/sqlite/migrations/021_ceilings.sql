-- How many calls a run may make, unless another limit is set for runs.
INSERT INTO scope (id, kind, max_calls)
VALUES ('run', 'run', 300)
ON CONFLICT (id) DO UPDATE
SET max_calls = coalesce(scope.max_calls, excluded.max_calls);
