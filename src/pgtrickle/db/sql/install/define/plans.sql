-- How a query would be maintained, without creating anything. Only the control plane compiles queries, so this is a request to it:
-- see refresh/plan_requests.py. CALL explain_query commits the request, waits for the result and returns it. validate_query can neither commit
-- nor wait: its request is committed with the caller's transaction, and the next call returns the result.

CREATE OR REPLACE FUNCTION pgtrickle._ask_plan(query text, path text, understood text DEFAULT NULL, me text DEFAULT pgtrickle._me()) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id bigint;
    keeper CONSTANT oid := pgtrickle._keeper();
    probe CONSTANT oid := to_regclass('pg_temp.__pgt_probe');
    looked_at text;
BEGIN
    IF query IS NULL OR query ~ '^\s*$' THEN
        RAISE EXCEPTION USING ERRCODE = 'syntax_error', MESSAGE = 'the query is empty', HINT = 'Write a SELECT.';
    END IF;
    IF NOT pgtrickle._is_served() THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'no scheduler is connected to this database, so the plan cannot be compiled',
            HINT = 'Start pgtrickle run, or use pgtrickle plan --query ''...''. SELECT * FROM pgtrickle.validate_query(...) shows what PostgreSQL '
                'alone can determine.';
    END IF;
    -- Constants are read when a text is parsed: the control plane gets one that it may parse.
    IF probe IS NOT NULL THEN
        PERFORM pgtrickle._check_rights(probe, keeper, pgtrickle._check_probe(probe));
        PERFORM pgtrickle._who_evaluates(probe, pgtrickle._check_probe(probe), keeper);
        SELECT d.defining_query INTO looked_at FROM pgtrickle._describe(probe) AS d;
    END IF;
    INSERT INTO pgtrickle.pgt_plans (query, search_path, asked_by, asked_in, understood, statement)
    VALUES (query, pgtrickle._check_path(path), pgtrickle._caller(me), pg_current_xact_id(), understood, looked_at)
    RETURNING plan_id INTO id;
    PERFORM pgtrickle._wake('define');
    RETURN id;
END
$$;
COMMENT ON FUNCTION pgtrickle._ask_plan(text, text, text, text) IS 'Internal. Asks the control plane how a query of the caller would be maintained.';

CREATE OR REPLACE FUNCTION pgtrickle._find_plan(query text, path text, understood text, me text DEFAULT pgtrickle._me(),
    OUT state text, OUT told_at timestamptz, OUT mode text, OUT reason text, OUT hint text, OUT plan text,
    OUT error_message text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    deadline CONSTANT timestamptz := clock_timestamp() + interval '2 seconds';
    known pgtrickle.pgt_plans;
BEGIN
    LOOP
        SELECT * INTO known
        FROM pgtrickle.pgt_plans AS p
        WHERE p.asked_by = pgtrickle._caller(me) AND p.query = _find_plan.query AND p.search_path = path AND p.understood = _find_plan.understood
          AND (p.answered_at IS NULL OR p.answered_at > clock_timestamp() - interval '1 minute')  -- as plans_forgotten.sql
        ORDER BY p.answered_at DESC NULLS LAST
        LIMIT 1;
        IF known.answered_at IS NOT NULL THEN
            SELECT 'TOLD', known.answered_at, known.mode, known.reason, known.hint, known.plan, known.error_message
            INTO state, told_at, mode, reason, hint, plan, error_message;
            RETURN;
        ELSIF NOT pgtrickle._is_served() THEN
            state := 'UNSERVED';
            RETURN;
        END IF;
        IF known.plan_id IS NULL THEN
            PERFORM pgtrickle._ask_plan(query, path, understood, me);
        END IF;
        state := CASE WHEN known.plan_id IS NULL OR known.asked_in = pg_current_xact_id_if_assigned() THEN 'ASKED' ELSE 'WAITING' END;
        -- A question that is committed is answered while we look, unless we look at one snapshot alone.
        EXIT WHEN state = 'ASKED' OR current_setting('transaction_isolation') <> 'read committed' OR clock_timestamp() > deadline;
        PERFORM pg_sleep(0.02);
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._find_plan(text, text, text, text) IS
'Internal. What the control plane has told the caller of a query within the last minute (TOLD). Otherwise this transaction asks (ASKED), one before '
'has asked (WAITING), or there is no control plane (UNSERVED).';

CREATE OR REPLACE FUNCTION pgtrickle._take_plan(id bigint, is_over bool, me text DEFAULT pgtrickle._me()) RETURNS TABLE (plan text, error_message text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM pgtrickle.pgt_plans AS p
    WHERE p.plan_id = id AND p.asked_by = pgtrickle._caller(me) AND (is_over OR p.plan IS NOT NULL OR p.error_message IS NOT NULL)
    RETURNING p.plan, p.error_message
$$;
COMMENT ON FUNCTION pgtrickle._take_plan(bigint, bool, text) IS
'Internal. The answer to a question of the caller; when the time is over the question is taken back, too.';

-- Ends its transaction to let the control plane see the request: no SECURITY DEFINER, no SET, not inside BEGIN ... COMMIT.
CREATE OR REPLACE PROCEDURE pgtrickle.explain_query(query text, INOUT plan text DEFAULT NULL, timeout interval DEFAULT '30 seconds')
LANGUAGE plpgsql AS $$
DECLARE
    id bigint;
    deadline timestamptz := pg_catalog.clock_timestamp() + timeout;
    answer record;
    pause float8 := 0.01;
    is_over bool;
    probe oid;
BEGIN
    PERFORM pgtrickle._require_primary();
    -- With the privileges of the caller; NULL where it names tables of other databases.
    probe := pgtrickle._probe_here(query);
    id := pgtrickle._ask_plan(query, pgtrickle._search_path());
    IF probe IS NOT NULL THEN
        PERFORM pgtrickle._drop_probe();
    END IF;
    LOOP
        COMMIT;
        is_over := pg_catalog.clock_timestamp() > deadline;
        SELECT * INTO answer FROM pgtrickle._take_plan(id, is_over);
        EXIT WHEN answer.plan IS NOT NULL OR answer.error_message IS NOT NULL;
        IF is_over THEN
            COMMIT;
            RAISE EXCEPTION USING ERRCODE = 'query_canceled', MESSAGE = pg_catalog.format('no answer within %s', timeout),
                HINT = CASE WHEN pgtrickle._is_served() THEN 'SELECT * FROM pgtrickle.health_check() says what is slow.'
                            ELSE 'No scheduler is connected to this database: start pgtrickle run.' END;
        END IF;
        PERFORM pg_catalog.pg_sleep(pause);
        pause := least(pause * 1.5, 0.25);
    END LOOP;
    COMMIT;
    IF answer.error_message IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_object_definition', MESSAGE = answer.error_message;
    END IF;
    plan := answer.plan;
END
$$;
COMMENT ON PROCEDURE pgtrickle.explain_query(text, text, interval) IS
'How a query would be maintained as a stream table: mode, operators and what a refresh does for each, what runs in Spark, what would force FULL, the '
'statements. Nothing is created. CALL it outside a transaction block, while pgtrickle run is running.';
