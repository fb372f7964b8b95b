-- One call can cost at most 10^12 tokens or millionths of a dollar, and sums stop growing at 10^15. Until this version a provider
-- could report up to the largest number that a column holds, and whoever added to that failed. Such a call is charged what it had
-- reserved, as one is whose cost is not known; and a sum that is beyond its end is what the runs that are left were charged.
UPDATE reservation
SET reserved_tokens = LEAST(reserved_tokens, 1000000000000), reserved_cost_micro = LEAST(reserved_cost_micro, 1000000000000)
WHERE reserved_tokens > 1000000000000 OR reserved_cost_micro > 1000000000000;

UPDATE reservation
SET charged_tokens = reserved_tokens, charged_cost_micro = reserved_cost_micro, is_estimated = 1
WHERE charged_tokens > 1000000000000 OR charged_cost_micro > 1000000000000;

UPDATE scope
SET spent_tokens = coalesce((
        SELECT sum(charged_tokens)
        FROM reservation
        WHERE state = 'settled' AND scope.id = ANY (string_to_array(reservation.scopes, E'\n'))
    ), 0)
WHERE spent_tokens > 1000000000000000;

UPDATE scope
SET spent_cost_micro = coalesce((
        SELECT sum(charged_cost_micro)
        FROM reservation
        WHERE state = 'settled' AND scope.id = ANY (string_to_array(reservation.scopes, E'\n'))
    ), 0)
WHERE spent_cost_micro > 1000000000000000;

UPDATE scope
SET reserved_tokens = coalesce((
        SELECT sum(reserved_tokens)
        FROM reservation
        WHERE state = 'open' AND scope.id = ANY (string_to_array(reservation.scopes, E'\n'))
    ), 0)
WHERE reserved_tokens > 1000000000000000;

UPDATE scope
SET reserved_cost_micro = coalesce((
        SELECT sum(reserved_cost_micro)
        FROM reservation
        WHERE state = 'open' AND scope.id = ANY (string_to_array(reservation.scopes, E'\n'))
    ), 0)
WHERE reserved_cost_micro > 1000000000000000;

UPDATE usage
SET tokens = coalesce((
        SELECT sum(charged_tokens)
        FROM reservation
        WHERE run_id = usage.run_id AND 'day/' || usage.day = ANY (string_to_array(reservation.scopes, E'\n'))
    ), 0)
WHERE tokens > 1000000000000000;

UPDATE usage
SET cost_micro = coalesce((
        SELECT sum(charged_cost_micro)
        FROM reservation
        WHERE run_id = usage.run_id AND 'day/' || usage.day = ANY (string_to_array(reservation.scopes, E'\n'))
    ), 0)
WHERE cost_micro > 1000000000000000;

UPDATE usage
SET input = 0
WHERE input > 1000000000000000;

UPDATE usage
SET output = 0
WHERE output > 1000000000000000;

UPDATE usage
SET cached = 0
WHERE cached > 1000000000000000;
