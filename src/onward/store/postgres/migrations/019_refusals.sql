-- A statement that is sent with others cannot ask first, and what it finds may be a reason to fail with all of them. This is how
-- it fails: with a code of Onward's own and a sentence for the server's log. It is called where a CASE has found the reason, so
-- a write that is not refused never calls it. VOLATILE, because the planner would else call it to see what it returns.
CREATE FUNCTION onward_refuse(code TEXT, why TEXT) RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION '%', why USING
        ERRCODE = code,
        HINT = 'Onward expects this error: it looks again and then repeats or refuses the write. There is nothing to do.';
END
$$;
