-- Asking the control plane for something: refresh, resume, repair.

CREATE OR REPLACE FUNCTION pgtrickle._request(id bigint, what text, me text DEFAULT pgtrickle._me()) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._authorize(id, me);
    asked CONSTANT timestamptz := clock_timestamp();
    mirrors bigint;
BEGIN
    IF what = 'refresh' AND st.status IN ('ERROR', 'SUSPENDED') THEN
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
        -- Mirrors have no name that somebody could resume them by.
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

-- Ends its transaction to let the control plane see the request: no SECURITY DEFINER, no SET, not inside BEGIN ... COMMIT.
CREATE OR REPLACE PROCEDURE pgtrickle.refresh_and_wait(name text, timeout interval DEFAULT '5 minutes')
LANGUAGE plpgsql AS $$
DECLARE
    id bigint;
    asked timestamptz;
    deadline timestamptz := pg_catalog.clock_timestamp() + timeout;
    st record;
    pause float8 := 0.01;
BEGIN
    PERFORM pgtrickle._require_primary();
    id := pgtrickle._find(name);
    asked := pgtrickle._request(id, 'refresh');
    LOOP
        COMMIT;
        SELECT t.status, t.refresh_done_at, m.last_error_message INTO st
        FROM pgtrickle.pgt_stream_tables AS t
        LEFT JOIN pgtrickle._messages AS m ON m.pgt_id = t.pgt_id
        WHERE t.pgt_id = id;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'undefined_table',
                MESSAGE = pg_catalog.format('stream table %s was dropped meanwhile', pg_catalog.quote_literal(name)),
                HINT = 'Nothing was refreshed.';
        END IF;
        EXIT WHEN st.refresh_done_at >= asked;
        IF st.status IN ('ERROR', 'SUSPENDED') THEN
            RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = pg_catalog.format('the refresh failed, status %s: %s', st.status,
                                            pg_catalog.regexp_replace(coalesce(st.last_error_message, 'no message'), '\s+', ' ', 'g')),
                HINT = pg_catalog.format('SELECT * FROM pgtrickle.get_refresh_history(%L)', name);
        END IF;
        IF pg_catalog.clock_timestamp() > deadline THEN
            RAISE EXCEPTION USING ERRCODE = 'query_canceled',
                MESSAGE = pg_catalog.format('no refresh of %s within %s', pg_catalog.quote_literal(name), timeout),
                HINT = 'The request is still pending. ' || CASE WHEN pgtrickle._is_served() THEN 'SELECT * FROM pgtrickle.health_check() says what is slow.'
                                                      ELSE 'No scheduler is connected to this database: start pgtrickle run.' END;
        END IF;
        PERFORM pg_catalog.pg_sleep(pause);
        pause := least(pause * 1.5, 0.25);
    END LOOP;
END
$$;
COMMENT ON PROCEDURE pgtrickle.refresh_and_wait(text, interval) IS
'Requests a refresh and returns when it is done; raises an error if it failed or after the timeout. Call it outside a transaction block.';

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
    EXECUTE format('CREATE TABLE %s (%s)', qualified, array_to_string(pgtrickle._column_definitions(st.output_columns), ', '));
    EXECUTE format('CREATE INDEX ON %s (__pgt_row_id)', qualified);
    EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', qualified);
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
COMMENT ON FUNCTION pgtrickle._restore_storage(bigint, text) IS 'Internal. Creates the storage table again when somebody has dropped it.';

CREATE OR REPLACE FUNCTION pgtrickle.repair_stream_table(name text) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    id bigint;
    restored bool;
BEGIN
    PERFORM pgtrickle._require_primary();
    id := pgtrickle._find(name);
    restored := pgtrickle._restore_storage(id);
    PERFORM pgtrickle._request(id, 'repair');
    RETURN CASE WHEN restored THEN 'storage table created again; ' ELSE '' END
        || 'errors cleared; capture will be checked and the content loaded anew';
END
$$;
COMMENT ON FUNCTION pgtrickle.repair_stream_table(text) IS
'Repairs a stream table: creates its storage again if it is missing, clears errors, checks capture and loads the content again.';
