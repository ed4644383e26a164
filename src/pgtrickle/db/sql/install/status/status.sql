-- Status functions and views. Readable by all roles with USAGE on the schema.

CREATE OR REPLACE FUNCTION pgtrickle.version() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT v.package_version FROM pgtrickle.pgt_schema_version AS v ORDER BY v.version DESC LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle.version() IS 'Version of pgtrickle that installed this schema.';

CREATE OR REPLACE FUNCTION pgtrickle._last_engine(id bigint) RETURNS TABLE (engine text, engine_reason text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.engine, m.engine_reason
    FROM pgtrickle.pgt_refresh_history AS h
    LEFT JOIN pgtrickle._refresh_messages AS m ON m.refresh_id = h.refresh_id
    WHERE h.pgt_id = id AND h.engine IS NOT NULL
    ORDER BY h.refresh_id DESC
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._last_engine(bigint) IS 'Internal. What evaluated the latest refresh of a stream table that changed it, and why.';

CREATE OR REPLACE FUNCTION pgtrickle.pgt_status()
RETURNS TABLE (name text, status text, refresh_mode text, is_populated bool, consecutive_errors int, schedule text, data_timestamp timestamptz,
               staleness interval, effective_refresh_mode text, mode_reason text, last_error_message text, last_refresh_at timestamptz,
               refresh_tier text, needs_reinit bool, pgt_id bigint, engine text, last_engine text, engine_reason text, mode_hint text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', st.pgt_schema, st.pgt_name), st.status, st.refresh_mode, st.is_populated, st.consecutive_errors, st.schedule,
           st.data_timestamp, clock_timestamp() - st.data_timestamp, st.effective_refresh_mode, st.mode_reason, m.last_error_message,
           st.last_refresh_at, st.refresh_tier, st.needs_reinit, st.pgt_id, st.engine, e.engine, e.engine_reason,
           pgtrickle._reason_hint(st.mode_reason_code, st.mode_reason_params)
    FROM pgtrickle.pgt_stream_tables AS st
    LEFT JOIN pgtrickle._messages AS m ON m.pgt_id = st.pgt_id
    LEFT JOIN LATERAL pgtrickle._last_engine(st.pgt_id) AS e ON true
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.pgt_status() IS
'One row per stream table: state, mode, the reason for it and what its author can do about it, what evaluated the last refresh and why, age of the '
'snapshot of the content, last error (for roles that may read the table).';

CREATE OR REPLACE FUNCTION pgtrickle._full_when() RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY[
        'a source was truncated, or rows of it were moved to another partition by MERGE',
        'a partition, column, function or view that the query reads was changed',
        'AUTO: the changes exceed differential_max_change_ratio of the sources, or max_buffer_rows',
        'AUTO: the delta exceeds delta_work_mem_cap_mb',
        'a cycle of stream tables lost rows of a source',
        'AUTO: FULL is predicted to be faster, from the duration of the latest refreshes',
        'AUTO: a row inserted and deleted between refreshes makes the query fail'
    ]
$$;
COMMENT ON FUNCTION pgtrickle._full_when() IS 'Internal. Texts: when a stream table in mode DIFFERENTIAL is refreshed in FULL.';

CREATE OR REPLACE FUNCTION pgtrickle._plan_text(plan jsonb) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_to_string(ARRAY(SELECT jsonb_array_elements_text(coalesce(plan -> 'words', plan -> 'tree')))
                           || CASE WHEN plan ->> 'mode' <> 'FULL' THEN 'FULL instead, when:'::text || ARRAY(SELECT '  ' || w
                               FROM unnest(pgtrickle._full_when()) AS w) END,
                           E'\n')
    WHERE plan IS NOT NULL
$$;
COMMENT ON FUNCTION pgtrickle._plan_text(jsonb) IS 'Internal. A plan of pgt_stream_tables in words.';

CREATE OR REPLACE FUNCTION pgtrickle.explain_st(name text) RETURNS TABLE (property text, value text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    id CONSTANT bigint := pgtrickle._find(name);
BEGIN
    RETURN QUERY
    SELECT p.property, p.value
    FROM pgtrickle.pgt_stream_tables AS st
    LEFT JOIN pgtrickle._messages AS m ON m.pgt_id = st.pgt_id
    CROSS JOIN LATERAL (VALUES
        (1, 'name', pg_catalog.format('%I.%I', st.pgt_schema, st.pgt_name)),
        (2, 'status', st.status),
        (3, 'refresh_mode', st.refresh_mode),
        (4, 'effective_refresh_mode', st.effective_refresh_mode),
        (5, 'mode_reason', st.mode_reason),
        (6, 'mode_hint', pgtrickle._reason_hint(st.mode_reason_code, st.mode_reason_params)),
        (7, 'schedule', st.schedule),
        (8, 'defining_query', st.defining_query),
        (9, 'sources', (SELECT pg_catalog.string_agg(pg_catalog.format('%s (%s)',
            coalesce(o.name, c.oid::pg_catalog.regclass::text, d.source_relid::text), CASE WHEN o.name IS NULL THEN d.source_type ELSE 'REMOTE' END),
            ', ' ORDER BY d.source_relid)
                        FROM pgtrickle.pgt_dependencies AS d
                        CROSS JOIN LATERAL (SELECT pgtrickle._origin_of(d.source_relid)) AS o(name)
                        LEFT JOIN pg_catalog.pg_class AS c ON c.oid = d.source_relid
                        WHERE d.pgt_id = st.pgt_id)),
        (10, 'columns', (SELECT pg_catalog.string_agg((c ->> 'name') || ' ' || (c ->> 'type'), ', ' ORDER BY i)
                        FROM pg_catalog.jsonb_array_elements(st.output_columns) WITH ORDINALITY AS e(c, i))),
        (11, 'plan', pgtrickle._plan_text(st.plan)),
        (12, 'statement for changes', CASE WHEN st.plan ->> 'mode' <> 'FULL' THEN st.plan -> 'leaves' ->> 0 END),
        (13, 'statement for loads', coalesce(st.plan ->> 'load', st.plan -> 'leaves' ->> 0)),
        (14, 'frontier', st.frontier::text),
        (15, 'data_timestamp', st.data_timestamp::text),
        (16, 'last_full_ms', st.last_full_ms::text),
        (17, 'last_diff_ms', st.last_diff_ms::text),
        (18, 'last_error_message', m.last_error_message),
        (19, 'engine', coalesce(st.engine, 'as the setting pg_trickle.engine says')),
        (20, 'last engine', (SELECT e.engine || coalesce(': ' || e.engine_reason, '') FROM pgtrickle._last_engine(id) AS e))
    ) AS p(position, property, value)
    WHERE st.pgt_id = id
    ORDER BY p.position;
END
$$;
COMMENT ON FUNCTION pgtrickle.explain_st(text) IS
'How a stream table is maintained: mode and reason, parsed query, sources, the plan in words (operators, what a refresh does for each, what runs in '
'Spark, what forces FULL), its statements, frontier.';

CREATE OR REPLACE FUNCTION pgtrickle.explain_refresh_mode(name text)
RETURNS TABLE (configured_mode text, effective_mode text, downgrade_reason text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    id CONSTANT bigint := pgtrickle._find(name);
BEGIN
    RETURN QUERY
    SELECT st.refresh_mode, st.effective_refresh_mode, st.mode_reason FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = id;
END
$$;
COMMENT ON FUNCTION pgtrickle.explain_refresh_mode(text) IS 'The requested mode, the effective mode, and why they differ.';

CREATE OR REPLACE FUNCTION pgtrickle.get_refresh_history(name text, max_rows int DEFAULT 20)
RETURNS TABLE (refresh_id bigint, data_timestamp timestamptz, start_time timestamptz, end_time timestamptz, action text, status text,
               rows_inserted bigint, rows_deleted bigint, delta_row_count bigint, duration_ms float8, initiated_by text, reason text,
               error_message text, timings jsonb, engine text, engine_reason text, wave_start_time timestamptz, share_ms float8,
               operator_rows jsonb)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    id CONSTANT bigint := pgtrickle._find(name);
BEGIN
    RETURN QUERY
    SELECT h.refresh_id, h.data_timestamp, h.start_time, h.end_time, h.action, h.status, n.rows_inserted, n.rows_deleted, n.delta_row_count,
           (extract(epoch FROM h.end_time - h.start_time) * 1000)::float8, h.initiated_by, m.reason, m.error_message, h.timings,
           h.engine, m.engine_reason, h.wave_start_time, h.share_ms, n.operator_rows
    FROM pgtrickle.pgt_refresh_history AS h
    LEFT JOIN pgtrickle._refresh_messages AS m ON m.refresh_id = h.refresh_id
    LEFT JOIN pgtrickle._refresh_numbers AS n ON n.refresh_id = h.refresh_id
    WHERE h.pgt_id = id
    ORDER BY h.refresh_id DESC
    LIMIT max_rows;
END
$$;
COMMENT ON FUNCTION pgtrickle.get_refresh_history(text, int) IS
'The latest refreshes of a stream table, newest first. Numbers of rows, reasons and errors are shown to those who may read it.';

CREATE OR REPLACE FUNCTION pgtrickle.list_sources(name text)
RETURNS TABLE (source_table text, source_oid oid, source_type text, cdc_mode text, columns_used text[], captured bool)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    id CONSTANT bigint := pgtrickle._find(name);
BEGIN
    RETURN QUERY
    SELECT coalesce(o.name, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), d.source_relid::text), d.source_relid,
           CASE WHEN o.name IS NULL THEN d.source_type ELSE 'REMOTE' END, d.cdc_mode,
           (SELECT pg_catalog.array_agg(a.attname::text ORDER BY a.attnum)
            FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = d.source_relid AND a.attnum = ANY (d.columns_used)),
           EXISTS (SELECT FROM pgtrickle.pgt_sources AS s WHERE s.source_relid = d.source_relid)
    FROM pgtrickle.pgt_dependencies AS d
    CROSS JOIN LATERAL (SELECT pgtrickle._origin_of(d.source_relid)) AS o(name)
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = d.source_relid
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE d.pgt_id = id
    ORDER BY 1;
END
$$;
COMMENT ON FUNCTION pgtrickle.list_sources(text) IS
'What a stream table reads: tables, views on the way, columns, whether changes are captured. REMOTE: a table of another database, read through its '
'mirror here (source_oid).';

CREATE OR REPLACE FUNCTION pgtrickle.get_staleness(name text) RETURNS float8
LANGUAGE plpgsql STABLE AS $$
DECLARE
    id CONSTANT bigint := pgtrickle._find(name);
BEGIN
    RETURN (SELECT extract(epoch FROM pg_catalog.clock_timestamp() - st.data_timestamp)::float8
            FROM pgtrickle.pgt_stream_tables AS st
            WHERE st.pgt_id = id);
END
$$;
COMMENT ON FUNCTION pgtrickle.get_staleness(text) IS 'Age of the snapshot of the content in seconds; NULL before the first load.';

CREATE OR REPLACE FUNCTION pgtrickle.trigger_inventory()
RETURNS TABLE (source_table text, source_oid oid, trigger_name text, trigger_type text, present bool, enabled bool, table_oid oid)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.relid::regclass::text, s.source_relid, w.tgname, w.label, t.oid IS NOT NULL, coalesce(t.tgenabled = w.state, false), m.relid
    FROM pgtrickle.pgt_sources AS s
    CROSS JOIN LATERAL pgtrickle._family(s.source_relid) AS m
    CROSS JOIN LATERAL pgtrickle._wanted_triggers(s.source_relid, m.relkind) AS w
    LEFT JOIN pg_trigger AS t ON t.tgrelid = m.relid AND t.tgname = w.tgname
    ORDER BY s.source_relid, m.relid, w.tgname
$$;
COMMENT ON FUNCTION pgtrickle.trigger_inventory() IS 'Every capture trigger that should exist, whether it does, and whether it is enabled as it should be.';

CREATE OR REPLACE FUNCTION pgtrickle.export_definition(name text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    id CONSTANT bigint := pgtrickle._find(name);
BEGIN
    RETURN (
        SELECT pg_catalog.format(E'SELECT pgtrickle.create_stream_table(\n    name => %L,\n    query => %L,\n    schedule => %L,\n    refresh_mode => %L%s\n);',
                   pg_catalog.format('%I.%I', st.pgt_schema, st.pgt_name), CASE WHEN pgtrickle._reads_mirrors(st.pgt_id) THEN st.original_query
                       ELSE st.defining_query END, st.schedule, st.refresh_mode,
                   (SELECT pg_catalog.string_agg(pg_catalog.format(E',\n    %I => %L', e.key, e.value), '' ORDER BY e.key)
                    FROM pg_catalog.jsonb_each_text(pgtrickle._options_of(id)) AS e
                    WHERE e.key NOT IN ('schedule', 'refresh_mode', 'tier')))
        FROM pgtrickle.pgt_stream_tables AS st
        WHERE st.pgt_id = id);
END
$$;
COMMENT ON FUNCTION pgtrickle.export_definition(text) IS 'The statement that creates this stream table again, with every name qualified.';

CREATE OR REPLACE FUNCTION pgtrickle.validate_query(query text) RETURNS TABLE (check_name text, result text, severity text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    accepted CONSTANT text := 'PostgreSQL accepts the query and you may read all of it';
    probe oid;
    keeper oid;
    d record;
    sources text[];
    understood text := '';
    told record;
    is_refused bool;
    mode text;
    reason text;
    hint text;
BEGIN
    PERFORM pgtrickle._require_primary();
    SELECT p.proowner INTO keeper FROM pg_catalog.pg_proc AS p WHERE p.oid = 'pgtrickle._register'::pg_catalog.regproc;
    probe := pgtrickle._probe_here(query);
    IF probe IS NOT NULL THEN
        PERFORM pgtrickle._refuse_unusable(probe);
        PERFORM pgtrickle._check_rights(probe, keeper);
        PERFORM pgtrickle._who_evaluates(probe, (SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid = probe), keeper);
        SELECT * INTO d FROM pgtrickle._describe(probe);
        sources := ARRAY(SELECT DISTINCT x.relid::pg_catalog.regclass::text FROM pgtrickle._reads(probe) AS x ORDER BY 1);
        understood := pg_catalog.jsonb_build_array(d.defining_query, d.output_columns, d.obstacle)::text;
        mode := CASE WHEN d.obstacle IS NULL THEN 'not known yet' ELSE 'FULL' END;
        reason := coalesce(pgtrickle._reason_text(d.obstacle),
                           'PostgreSQL shows no obstacle to DIFFERENTIAL; the control plane decides when it compiles the query');
        hint := pgtrickle._reason_hint(d.obstacle ->> 'code', d.obstacle -> 'params');
    END IF;
    told := pgtrickle._find_plan(query, pgtrickle._search_path(), understood);
    IF probe IS NOT NULL THEN
        PERFORM pgtrickle._drop_probe();
    END IF;
    is_refused := told.error_message IS NOT NULL;
    IF told.state = 'TOLD' THEN
        mode := coalesce(told.mode, 'none');
        reason := coalesce(told.error_message, told.reason);
        hint := told.hint;
    END IF;
    IF probe IS NOT NULL OR told.state = 'TOLD' THEN
        RETURN QUERY VALUES
            ('valid', CASE WHEN probe IS NULL AND is_refused THEN 'the control plane refuses the query' ELSE accepted END,
                      CASE WHEN probe IS NULL AND is_refused THEN 'WARNING' ELSE 'INFO' END),
            ('refresh_mode', mode, CASE WHEN mode IN ('DIFFERENTIAL', 'not known yet') THEN 'INFO' ELSE 'WARNING' END),
            ('reason', coalesce(reason, 'no obstacle'), CASE WHEN mode IN ('DIFFERENTIAL', 'not known yet') THEN 'INFO' ELSE 'WARNING' END);
        IF hint IS NOT NULL THEN
            RETURN QUERY VALUES ('hint', hint, 'INFO');
        END IF;
    ELSE
        RETURN QUERY VALUES ('valid', 'the query reads other databases: only the control plane can tell', 'INFO');
    END IF;
    IF probe IS NOT NULL THEN
        RETURN QUERY
        SELECT 'columns', pg_catalog.string_agg((c ->> 'name') || ' ' || (c ->> 'type'), ', ' ORDER BY i), 'INFO'
        FROM pg_catalog.jsonb_array_elements(d.output_columns) WITH ORDINALITY AS e(c, i);
        RETURN QUERY SELECT 'source', s, 'INFO' FROM pg_catalog.unnest(sources) AS s;
    END IF;
    IF told.state = 'TOLD' THEN
        RETURN QUERY VALUES ('planned_at', told.told_at::text, 'INFO');
    END IF;
    RETURN QUERY
    SELECT 'plan', line, CASE WHEN is_refused THEN 'WARNING' ELSE 'INFO' END
    FROM pg_catalog.unnest(pg_catalog.string_to_array(CASE
        WHEN is_refused THEN 'none: the control plane refuses the query'
        WHEN told.state = 'TOLD' THEN told.plan
        WHEN told.state = 'ASKED' THEN 'requested when this transaction commits: the same call shortly afterwards shows it (CALL '
            'pgtrickle.explain_query(...) waits for it)'
        WHEN told.state = 'WAITING' THEN 'requested; the control plane has not answered yet: call again (SELECT * FROM pgtrickle.health_check() shows problems)'
        ELSE 'no scheduler is connected to this database, so the plan cannot be compiled (hint: start pgtrickle run, or use pgtrickle plan --query ''...'')'
    END, E'\n')) WITH ORDINALITY AS l(line, i)
    ORDER BY i;
END
$$;
COMMENT ON FUNCTION pgtrickle.validate_query(text) IS
'Checks a query as create_stream_table would, without creating anything: whether it is valid, which mode AUTO would choose and why, what it reads. '
'Raises an error if it is not usable at all. The call requests the complete plan from the control plane: the rows "plan" report this, and show the '
'plan, line by line, when the same call is repeated within a minute. CALL pgtrickle.explain_query(query) waits for it.';
