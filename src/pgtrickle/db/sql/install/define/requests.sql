-- Requests to the control plane: refresh, resume, repair.

CREATE OR REPLACE FUNCTION pgtrickle._request(id bigint, what text, me text DEFAULT pgtrickle._me()) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._authorize(id, me);
    asked CONSTANT timestamptz := clock_timestamp();
    mirrors bigint;
BEGIN
    -- One in ERROR is tried again: now instead of later.
    IF what = 'refresh' AND st.status = 'ERROR' THEN
        what := 'resume';
    END IF;
    IF what = 'refresh' AND st.status = 'SUSPENDED' THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('stream table %I.%I is in status %s%s', st.pgt_schema, st.pgt_name, st.status,
                             coalesce(': ' || regexp_replace(st.last_error_message, '\s+', ' ', 'g'), '')),
            HINT = format('After fixing the cause: SELECT pgtrickle.resume_stream_table(%L)', format('%I.%I', st.pgt_schema, st.pgt_name));
    END IF;
    UPDATE pgtrickle.pgt_stream_tables AS t
    SET refresh_requested_at = asked,
        status = CASE WHEN what = 'refresh' THEN t.status
                      WHEN t.is_populated AND NOT t.needs_reinit AND what = 'resume' THEN 'ACTIVE'
                      ELSE 'INITIALIZING' END,
        consecutive_errors = CASE WHEN what = 'refresh' THEN t.consecutive_errors ELSE 0 END,
        last_error_code = CASE WHEN what = 'refresh' THEN t.last_error_code END,
        last_error_message = CASE WHEN what = 'refresh' THEN t.last_error_message END,
        needs_reinit = t.needs_reinit OR what = 'repair',
        reinit_reason_code = CASE WHEN what = 'repair' THEN 'repair_requested' ELSE t.reinit_reason_code END,
        reinit_reason_params = CASE WHEN what = 'repair' THEN '{}' ELSE t.reinit_reason_params END,
        reinit_reason = CASE WHEN what = 'repair' THEN pgtrickle._reason_text('repair_requested', '{}') ELSE t.reinit_reason END,
        epoch = t.epoch + CASE WHEN what = 'repair' THEN 1 ELSE 0 END,
        updated_at = CASE WHEN what = 'refresh' THEN t.updated_at ELSE asked END
    WHERE t.pgt_id = id;
    PERFORM pgtrickle._wake(what, id);
    IF what <> 'refresh' THEN
        -- Users cannot name mirrors, so they are resumed with their readers.
        WITH resumed AS (
            UPDATE pgtrickle.pgt_stream_tables AS t
            SET refresh_requested_at = asked,
                status = CASE WHEN t.is_populated AND NOT t.needs_reinit THEN 'ACTIVE' ELSE 'INITIALIZING' END,
                consecutive_errors = 0,
                last_error_code = NULL,
                last_error_message = NULL,
                updated_at = asked
            WHERE t.status IN ('ERROR', 'SUSPENDED')
              AND t.pgt_relid IN (SELECT d.source_relid FROM pgtrickle.pgt_dependencies AS d WHERE d.pgt_id = id)
              AND t.pgt_id IN (SELECT m.pgt_id FROM pgtrickle.pgt_mirrors AS m)
            RETURNING t.pgt_id
        )
        SELECT count(pgtrickle._wake(what, r.pgt_id)) INTO mirrors FROM resumed AS r;
    END IF;
    RETURN asked;
END
$$;
COMMENT ON FUNCTION pgtrickle._request(bigint, text, text) IS 'Internal. Notes a request (refresh, resume, repair) and wakes the control plane.';

CREATE OR REPLACE FUNCTION pgtrickle.refresh_stream_table(name text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pgtrickle._require_primary();
    PERFORM pgtrickle._request(pgtrickle._find(name), 'refresh');
END
$$;
COMMENT ON FUNCTION pgtrickle.refresh_stream_table(text) IS
'Requests a refresh, independent of the schedule, and returns immediately. To wait for it: CALL pgtrickle.refresh_and_wait(name).';

CREATE OR REPLACE FUNCTION pgtrickle.manual_refresh(stream_table_name text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT pgtrickle.refresh_stream_table(stream_table_name)
$$;
COMMENT ON FUNCTION pgtrickle.manual_refresh(text) IS 'The same as refresh_stream_table.';

CREATE OR REPLACE FUNCTION pgtrickle._request_upstream(id bigint, me text DEFAULT pgtrickle._me(), OUT upstream bigint[], OUT asked timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    woken bigint;
BEGIN
    -- Whoever may refresh a table may have what it reads refreshed: it is what the table is made of.
    PERFORM pgtrickle._authorize(id, me);
    asked := clock_timestamp();
    WITH RECURSIVE up(pgt_id) AS (
        SELECT _request_upstream.id
        UNION
        SELECT u.pgt_id
        FROM up
        JOIN pgtrickle.pgt_dependencies AS d ON d.pgt_id = up.pgt_id
        JOIN pgtrickle.pgt_stream_tables AS u ON u.pgt_relid = d.source_relid
        -- A mirror without rows is not refreshed: its reader reads the replica at the origin.
        WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_mirrors AS m WHERE m.pgt_id = u.pgt_id AND NOT m.is_stored)
    ), requested AS (
        UPDATE pgtrickle.pgt_stream_tables AS t
        SET refresh_requested_at = asked,
            -- Tried again now, as by resume_stream_table.
            status = CASE WHEN t.status <> 'ERROR' THEN t.status WHEN t.is_populated AND NOT t.needs_reinit THEN 'ACTIVE' ELSE 'INITIALIZING' END
        FROM (SELECT x.pgt_id FROM pgtrickle.pgt_stream_tables AS x JOIN up USING (pgt_id)
              WHERE x.pgt_id <> _request_upstream.id AND x.status <> 'SUSPENDED'
              ORDER BY x.pgt_id FOR UPDATE OF x) AS x
        WHERE t.pgt_id = x.pgt_id
        RETURNING t.pgt_id
    )
    SELECT coalesce(array_agg(r.pgt_id), '{}') INTO upstream FROM requested AS r;
    SELECT count(pgtrickle._wake('refresh', u)) INTO woken FROM unnest(upstream) AS u;
END
$$;
COMMENT ON FUNCTION pgtrickle._request_upstream(bigint, text) IS
'Internal. Requests a refresh of all stream tables and mirrors that a stream table reads, directly or through others; returns them.';

-- The name is what PostgreSQL shows in the context of its error "invalid transaction termination", which cannot be caught.
CREATE OR REPLACE PROCEDURE pgtrickle._commit_which_is_not_possible_inside_a_transaction_block() LANGUAGE plpgsql AS $$
BEGIN
    COMMIT;
END
$$;
COMMENT ON PROCEDURE pgtrickle._commit_which_is_not_possible_inside_a_transaction_block() IS
'Internal. Ends the transaction, so that the control plane sees a request.';

CREATE OR REPLACE FUNCTION pgtrickle._no_service() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN NOT pgtrickle._is_served() THEN 'no control plane serves this database: start pgtrickle run, or pgtrickle refresh'
                WHEN EXISTS (SELECT FROM pgtrickle.pgt_runtime AS r WHERE r.state ->> 'enabled' = 'false')
                     AND NOT EXISTS (SELECT FROM pg_stat_activity AS a
                                     WHERE a.datname = current_database() AND a.application_name = 'pgtrickle/control')
                    THEN 'pgtrickle is disabled for this database: switch the setting enabled on' END
$$;
COMMENT ON FUNCTION pgtrickle._no_service() IS 'Internal. Why no refresh will happen, whatever is requested; NULL when one will.';

CREATE OR REPLACE FUNCTION pgtrickle._answer(ids bigint[], asked timestamptz) RETURNS bool
LANGUAGE plpgsql STABLE AS $$
DECLARE
    st record;
BEGIN
    SELECT t.pgt_schema, t.pgt_name, t.status, t.last_error_code, m.last_error_message INTO st
    FROM pgtrickle.pgt_stream_tables AS t
    LEFT JOIN pgtrickle._messages AS m ON m.pgt_id = t.pgt_id
    WHERE t.pgt_id = ANY (ids)
      AND (t.status = 'SUSPENDED' OR (t.status = 'ERROR' AND t.refresh_done_at >= asked)
           -- The scheduler takes that message back a moment after what it waits for works again.
           OR (t.last_error_code = 'waits_for_stream_table'
               AND EXISTS (WITH RECURSIVE up(pgt_id) AS (
                               SELECT t.pgt_id
                               UNION
                               SELECT u.pgt_id
                               FROM up
                               JOIN pgtrickle.pgt_dependencies AS d ON d.pgt_id = up.pgt_id
                               JOIN pgtrickle.pgt_stream_tables AS u ON u.pgt_relid = d.source_relid)
                           SELECT FROM up JOIN pgtrickle.pgt_stream_tables AS u ON u.pgt_id = up.pgt_id WHERE u.status IN ('ERROR', 'SUSPENDED'))))
    ORDER BY t.last_error_code = 'waits_for_stream_table', t.pgt_id
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = pg_catalog.format('the refresh of %I.%I failed, status %s: %s', st.pgt_schema, st.pgt_name, st.status,
                                        pg_catalog.regexp_replace(coalesce(st.last_error_message, 'no message'), '\s+', ' ', 'g')),
            HINT = pg_catalog.format('SELECT * FROM pgtrickle.get_refresh_history(%L)', pg_catalog.format('%I.%I', st.pgt_schema, st.pgt_name));
    END IF;
    RETURN NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = ANY (ids) AND coalesce(t.refresh_done_at < asked, true));
END
$$;
COMMENT ON FUNCTION pgtrickle._answer(bigint[], timestamptz) IS
'Internal. Whether refreshes that were requested at this time are done; raises when one has failed or cannot happen.';

CREATE OR REPLACE FUNCTION pgtrickle._commit_lock(id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (1885827703::bigint << 32) | (id & 4294967295)
$$;
COMMENT ON FUNCTION pgtrickle._commit_lock(bigint) IS
'Internal. The advisory lock that a requested refresh of a stream table holds from its first statement to its commit: sessions that wait for the refresh '
'wait for the lock.';

CREATE OR REPLACE FUNCTION pgtrickle._await_commit(id bigint, most interval) RETURNS bool
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waited bool;
BEGIN
    BEGIN
        waited := NOT pg_catalog.pg_try_advisory_xact_lock_shared(pgtrickle._commit_lock(id));
        IF waited THEN
            PERFORM pg_catalog.set_config('lock_timeout', pg_catalog.ceil(1000 * extract(epoch FROM most))::text, true);
            PERFORM pg_catalog.pg_advisory_xact_lock_shared(pgtrickle._commit_lock(id));
        END IF;
        -- Undoes the setting and releases the lock, which the next refresh would otherwise not get.
        RAISE EXCEPTION USING ERRCODE = 'PGT00';
    EXCEPTION
        WHEN lock_not_available OR SQLSTATE 'PGT00' THEN
            RETURN waited;
    END;
END
$$;
COMMENT ON FUNCTION pgtrickle._await_commit(bigint, interval) IS
'Internal. Waits until the transaction of a refresh ends, at most this long. False: none is open, and nothing was waited for.';

-- Ends its transaction to let the control plane see the request: no SECURITY DEFINER, no SET, not inside BEGIN ... COMMIT.
CREATE OR REPLACE PROCEDURE pgtrickle.refresh_and_wait(name text, timeout interval DEFAULT '5 minutes')
LANGUAGE plpgsql AS $$
DECLARE
    begun CONSTANT timestamptz := pg_catalog.clock_timestamp();
    id bigint;
    wanted bigint[];
    asked timestamptz;
    is_last bool := false;
    -- A scheduler that was restarted is there within a second.
    check_at timestamptz := begun + least(timeout, interval '1 second');
    problem text;
    said text;
    open_id bigint;
BEGIN
    PERFORM pgtrickle._require_primary();
    id := pgtrickle._find(name);
    -- First what it reads, then itself.
    SELECT r.upstream, r.asked INTO wanted, asked FROM pgtrickle._request_upstream(id) AS r;
    LOOP
        IF wanted = '{}' OR is_last THEN
            wanted := ARRAY[id];
            asked := pgtrickle._request(id, 'refresh');
            is_last := true;
        END IF;
        LOOP
            CALL pgtrickle._commit_which_is_not_possible_inside_a_transaction_block();
            IF NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id) THEN
                RAISE EXCEPTION USING ERRCODE = 'undefined_table',
                    MESSAGE = pg_catalog.format('stream table %s was dropped meanwhile', pg_catalog.quote_literal(name)),
                    HINT = 'Nothing was refreshed.';
            END IF;
            EXIT WHEN pgtrickle._answer(wanted, asked);
            IF pg_catalog.clock_timestamp() > check_at THEN
                problem := pgtrickle._no_service();
                IF problem IS NOT NULL THEN
                    RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
                        MESSAGE = pg_catalog.format('%s is not refreshed: %s', pg_catalog.quote_literal(name), problem), HINT = 'The request stays.';
                END IF;
                check_at := pg_catalog.clock_timestamp() + interval '0.25 seconds';
            END IF;
            IF pg_catalog.clock_timestamp() > begun + timeout THEN
                SELECT m.last_error_message INTO said FROM pgtrickle._messages AS m WHERE m.pgt_id = id;
                RAISE EXCEPTION USING ERRCODE = 'query_canceled',
                    MESSAGE = pg_catalog.format('no refresh of %s within %s%s', pg_catalog.quote_literal(name), timeout, coalesce(': ' || said, '')),
                    HINT = 'The request is still pending. SELECT * FROM pgtrickle.health_check() says what is slow.';
            END IF;
            -- The commit wakes this session. Before the refresh writes, and where another session holds the lock, it polls: about 0.1 ms of the server.
            SELECT pg_catalog.min(t.pgt_id) INTO open_id
            FROM pgtrickle.pgt_stream_tables AS t
            WHERE t.pgt_id = ANY (wanted) AND coalesce(t.refresh_done_at < asked, true);
            IF NOT pgtrickle._await_commit(open_id, interval '0.1 seconds') THEN
                PERFORM pg_catalog.pg_sleep(least(greatest(0.002, extract(epoch FROM pg_catalog.clock_timestamp() - begun) / 50), 0.008));
            END IF;
        END LOOP;
        EXIT WHEN is_last;
        is_last := true;
    END LOOP;
END
$$;
COMMENT ON PROCEDURE pgtrickle.refresh_and_wait(text, interval) IS
'Refreshes the stream tables that it reads, directly or through others, then itself, and returns when that is done; raises an error if one of them failed, '
'if no control plane serves the database, or after the timeout. Call it outside a transaction block.';

CREATE OR REPLACE FUNCTION pgtrickle.suspend_stream_table(name text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT pgtrickle.alter_stream_table(name, status => 'SUSPENDED')
$$;
COMMENT ON FUNCTION pgtrickle.suspend_stream_table(text) IS
'Suspends a stream table: it is not refreshed until resume_stream_table(name), and its changes are kept. A refresh that is running does not commit.';

CREATE OR REPLACE FUNCTION pgtrickle.resume_stream_table(name text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pgtrickle._require_primary();
    PERFORM pgtrickle._request(pgtrickle._find(name), 'resume');
END
$$;
COMMENT ON FUNCTION pgtrickle.resume_stream_table(text) IS 'Resumes a suspended or failed stream table and clears its errors; also the mirrors that it reads.';

CREATE OR REPLACE FUNCTION pgtrickle._restore_storage(id bigint, me text DEFAULT pgtrickle._me()) RETURNS bool
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._authorize(id, me);
    qualified CONSTANT text := format('%I.%I', st.pgt_schema, st.pgt_name);
BEGIN
    IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = st.pgt_relid) THEN
        RETURN false;
    END IF;
    PERFORM pgtrickle._create_storage(qualified, st.output_columns, st.partition_by);
    IF pgtrickle._author(st.created_by, st.created_key) <> current_user THEN
        EXECUTE format('GRANT SELECT ON %s TO %I WITH GRANT OPTION', qualified, pgtrickle._author(st.created_by, st.created_key));
    END IF;
    -- A table that has had other columns before had other numbers for these.
    UPDATE pgtrickle.pgt_dependencies AS d
    SET source_relid = qualified::regclass::oid, columns_used = a.numbers, column_names = a.names
    FROM (SELECT r.pgt_id,
                 coalesce(array_agg(a.attnum ORDER BY a.attnum) FILTER (WHERE a.attnum IS NOT NULL), '{}') AS numbers,
                 coalesce(array_agg(a.attname ORDER BY a.attnum) FILTER (WHERE a.attnum IS NOT NULL), '{}') AS names
          FROM pgtrickle.pgt_dependencies AS r
          LEFT JOIN pg_attribute AS a ON a.attrelid = qualified::regclass AND a.attname = ANY (r.column_names)
          WHERE r.source_relid = st.pgt_relid
          GROUP BY r.pgt_id) AS a
    WHERE d.source_relid = st.pgt_relid AND d.pgt_id = a.pgt_id;
    -- Schedulers know readers by the table that they read.
    PERFORM pgtrickle._wake('alter', r.pgt_id)
    FROM (SELECT DISTINCT d.pgt_id FROM pgtrickle.pgt_dependencies AS d WHERE d.source_relid = qualified::regclass::oid) AS r;
    UPDATE pgtrickle.pgt_privileges AS p
    SET relid = d.source_relid, columns = d.columns_used
    FROM pgtrickle.pgt_dependencies AS d
    WHERE p.relid = st.pgt_relid AND d.pgt_id = p.pgt_id AND d.source_relid = qualified::regclass::oid;
    UPDATE pgtrickle.pgt_stream_tables AS t
    SET pgt_relid = qualified::regclass::oid, is_populated = false, frontier = NULL, epoch = t.epoch + 1
    WHERE t.pgt_id = id;
    PERFORM pgtrickle._shape_publication(id);
    RETURN true;
END
$$;
COMMENT ON FUNCTION pgtrickle._restore_storage(bigint, text) IS 'Internal. Creates the storage table again after it was dropped.';

-- No SET search_path: the query is resolved along the path of the session that defined it.
CREATE OR REPLACE FUNCTION pgtrickle._adopt_sources(id bigint) RETURNS bool
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    st record;
    own pg_catalog.jsonb;
BEGIN
    IF NOT EXISTS (
        SELECT
        FROM pgtrickle.pgt_dependencies AS d
        WHERE d.pgt_id = id
          AND (NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = d.source_relid)
               OR EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                          WHERE a.attrelid = d.source_relid AND a.attnum = ANY (d.columns_used) AND a.attisdropped))
    ) THEN
        RETURN false;
    END IF;
    PERFORM pgtrickle._require_author(id, true);
    SELECT t.pgt_schema, t.pgt_name, t.original_query, t.session_settings INTO STRICT st FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id;
    SELECT pg_catalog.jsonb_object_agg(s.key, pg_catalog.current_setting(s.key)) INTO own FROM pg_catalog.jsonb_each_text(st.session_settings) AS s;
    PERFORM pg_catalog.set_config(s.key, s.value, true) FROM pg_catalog.jsonb_each_text(st.session_settings) AS s;
    PERFORM pgtrickle.alter_stream_table(pg_catalog.format('%I.%I', st.pgt_schema, st.pgt_name), query => st.original_query);
    PERFORM pg_catalog.set_config(s.key, s.value, true) FROM pg_catalog.jsonb_each_text(own) AS s;
    RETURN true;
END
$$;
COMMENT ON FUNCTION pgtrickle._adopt_sources(bigint) IS
'Internal. If a source or its column was dropped: defines the stream table again by the same query, which then reads what has these names now. Only the '
'author may do this. Returns whether it did.';

CREATE OR REPLACE FUNCTION pgtrickle.repair_stream_table(name text) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    id bigint;
    restored bool;
    adopted bool;
BEGIN
    PERFORM pgtrickle._require_primary();
    id := pgtrickle._find(name);
    restored := pgtrickle._restore_storage(id);
    adopted := pgtrickle._adopt_sources(id);
    PERFORM pgtrickle._request(id, 'repair');
    RETURN CASE WHEN restored THEN 'storage table created again; ' ELSE '' END
        || CASE WHEN adopted THEN 'sources and columns that were created again are adopted; ' ELSE '' END
        || 'errors cleared; capture will be checked and the content loaded again';
END
$$;
COMMENT ON FUNCTION pgtrickle.repair_stream_table(text) IS
'Repairs a stream table: creates its storage again if it is missing, adopts sources and columns that were dropped and created again under the same names (if '
'its author calls it), clears errors, checks capture and loads the content again.';
