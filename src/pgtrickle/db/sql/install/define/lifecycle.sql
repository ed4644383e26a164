-- The public functions that create, alter and drop stream tables. SECURITY INVOKER, no SET search_path: they act as the caller would.

-- PostgreSQL runs code when it parses and plans a query: input functions of constants, immutable functions. In a text that another role wrote this is
-- code of that role, and it runs with the privileges of the role that parses the text.
CREATE OR REPLACE FUNCTION pgtrickle._require_author(id bigint, is_resolved_again bool) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st record;
    keeper CONSTANT oid := pgtrickle._keeper();
BEGIN
    SELECT t.pgt_schema, t.pgt_name, t.run_as, t.is_judged, t.functions_reached, t.types_reached, t.created_by,
           pgtrickle._author(t.created_by, t.created_key) AS author
    INTO STRICT st
    FROM pgtrickle.pgt_stream_tables AS t
    WHERE t.pgt_id = id;
    -- The author gains nothing that it could not do itself.
    IF pg_has_role(st.author, current_user, 'USAGE') THEN
        RETURN;
    END IF;
    -- The stored text calls what the service role was found to run. Of a query of the service role itself that includes code of other roles.
    IF NOT is_resolved_again AND coalesce(st.run_as, 'service') = 'service' AND st.is_judged
       AND NOT EXISTS (SELECT FROM pg_proc AS p WHERE p.oid = ANY (st.functions_reached) AND NOT pgtrickle._is_ours(p.proowner, keeper, false))
       AND NOT EXISTS (SELECT FROM pg_type AS t WHERE t.oid = ANY (st.types_reached) AND t.typtype IN ('d', 'c')
                                                  AND NOT pgtrickle._is_ours(t.typowner, keeper, false)) THEN
        RETURN;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
        MESSAGE = format('code of %1$I could run with the privileges of %2$I: the query of %3$I.%4$I was written by %1$I', st.created_by, current_user,
                         st.pgt_schema, st.pgt_name),
        HINT = format('Only a session of %1$I may do this, or: SELECT pgtrickle.alter_stream_table(%2$L, query => ...).', st.created_by,
                      format('%I.%I', st.pgt_schema, st.pgt_name));
END
$$;
COMMENT ON FUNCTION pgtrickle._require_author(bigint, bool) IS
'Internal. Raises unless the caller may have the stored query of a stream table parsed: its author may, and others if it calls trusted code only. '
'is_resolved_again: its names are looked up again, along the path of the author.';

CREATE OR REPLACE FUNCTION pgtrickle._create(name text, query text, options jsonb, if_exists text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    target record;
    existing bigint;
    probe oid;
BEGIN
    PERFORM pgtrickle._require_primary();
    SELECT * INTO target FROM pgtrickle._parse_name(name);
    options := pgtrickle._check_options(options) || pg_catalog.jsonb_build_object('session_settings', pgtrickle._session_settings());
    IF if_exists <> 'raise' THEN
        SELECT st.pgt_id INTO existing
        FROM pgtrickle.pgt_stream_tables AS st
        WHERE st.pgt_schema = target.schema_name AND st.pgt_name = target.table_name;
        IF existing IS NOT NULL AND if_exists = 'skip' THEN
            RAISE NOTICE USING MESSAGE = pg_catalog.format('stream table %I.%I already exists, skipping', target.schema_name, target.table_name);
            RETURN;
        END IF;
    END IF;
    probe := pgtrickle._probe_here(query);
    IF probe IS NULL THEN
        PERFORM pgtrickle._request_definition(existing, target.schema_name, target.table_name, query, options,
                                              pgtrickle._search_path());
        RETURN;
    END IF;
    PERFORM pgtrickle._warn_of_paths(probe);
    IF existing IS NULL THEN
        PERFORM pgtrickle._register(probe, target.schema_name, target.table_name, query, options);
        IF NOT pgtrickle._is_served() THEN
            RAISE NOTICE USING
                MESSAGE = pg_catalog.format('%I.%I is empty until a scheduler serves this database', target.schema_name, target.table_name),
                HINT = 'Start pgtrickle run.';
        END IF;
    ELSE
        -- the same text again keeps content and state, if it means the same
        PERFORM pgtrickle._alter(existing, probe, CASE WHEN st.original_query <> query OR pgtrickle._reads_otherwise(existing, probe)
            OR pgtrickle._means_otherwise(st, probe, options -> 'session_settings') THEN query END, options)
        FROM pgtrickle.pgt_stream_tables AS st
        WHERE st.pgt_id = existing;
    END IF;
    PERFORM pgtrickle._drop_probe();
END
$$;
COMMENT ON FUNCTION pgtrickle._create(text, text, jsonb, text) IS 'Internal. What the three creating functions share.';

CREATE OR REPLACE FUNCTION pgtrickle.create_stream_table(
    name text,
    query text,
    schedule text DEFAULT 'calculated',
    refresh_mode text DEFAULT 'AUTO',
    initialize bool DEFAULT true,
    diamond_consistency text DEFAULT NULL,
    diamond_schedule_policy text DEFAULT NULL,
    cdc_mode text DEFAULT NULL,
    append_only bool DEFAULT false,
    pooler_compatibility_mode bool DEFAULT false,
    partition_by text DEFAULT NULL,
    max_differential_joins int DEFAULT NULL,
    max_delta_fraction float8 DEFAULT NULL,
    engine text DEFAULT NULL
) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT pgtrickle._create(name, query, pg_catalog.jsonb_build_object(
        'schedule', schedule, 'refresh_mode', refresh_mode, 'initialize', initialize,
        'diamond_consistency', diamond_consistency, 'diamond_schedule_policy', diamond_schedule_policy, 'cdc_mode', cdc_mode,
        'append_only', append_only, 'pooler_compatibility_mode', pooler_compatibility_mode, 'partition_by', partition_by,
        'max_differential_joins', max_differential_joins, 'max_delta_fraction', max_delta_fraction, 'engine', engine), 'raise')
$$;
COMMENT ON FUNCTION pgtrickle.create_stream_table(text, text, text, text, bool, text, text, text, bool, bool, text, int, float8, text) IS
'Creates a stream table: a table that stores the result of a query and is maintained by the control plane. The query is checked in the call; the first '
'load follows immediately. Schedules: 30s, 1h30m, seconds, cron (UTC), calculated. Modes: AUTO (differential where exact, else FULL with a stored '
'reason), DIFFERENTIAL (raises when impossible), FULL, IMMEDIATE (asynchronous as well: refreshed right after a commit, which does not wait). '
'max_delta_fraction: ratio of changed rows to rows of the sources above which AUTO refreshes in FULL, instead of differential_max_change_ratio. '
'max_differential_joins: number of joins of the query above which it is not maintained from changes. append_only is refused. '
'partition_by: RANGE(day, 1 month), RANGE(id, 1000000), LIST(region), HASH(id, 8), or a column (dates by month, others by value).';

CREATE OR REPLACE FUNCTION pgtrickle.create_stream_table_if_not_exists(
    name text,
    query text,
    schedule text DEFAULT 'calculated',
    refresh_mode text DEFAULT 'AUTO',
    initialize bool DEFAULT true,
    diamond_consistency text DEFAULT NULL,
    diamond_schedule_policy text DEFAULT NULL,
    cdc_mode text DEFAULT NULL,
    append_only bool DEFAULT false,
    pooler_compatibility_mode bool DEFAULT false,
    partition_by text DEFAULT NULL,
    max_differential_joins int DEFAULT NULL,
    max_delta_fraction float8 DEFAULT NULL,
    engine text DEFAULT NULL
) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT pgtrickle._create(name, query, pg_catalog.jsonb_build_object(
        'schedule', schedule, 'refresh_mode', refresh_mode, 'initialize', initialize,
        'diamond_consistency', diamond_consistency, 'diamond_schedule_policy', diamond_schedule_policy, 'cdc_mode', cdc_mode,
        'append_only', append_only, 'pooler_compatibility_mode', pooler_compatibility_mode, 'partition_by', partition_by,
        'max_differential_joins', max_differential_joins, 'max_delta_fraction', max_delta_fraction, 'engine', engine), 'skip')
$$;
COMMENT ON FUNCTION pgtrickle.create_stream_table_if_not_exists(text, text, text, text, bool, text, text, text, bool, bool, text, int, float8, text) IS
'Like create_stream_table; does nothing, with a notice, when the stream table exists.';

CREATE OR REPLACE FUNCTION pgtrickle.create_or_replace_stream_table(
    name text,
    query text,
    schedule text DEFAULT 'calculated',
    refresh_mode text DEFAULT 'AUTO',
    initialize bool DEFAULT true,
    diamond_consistency text DEFAULT NULL,
    diamond_schedule_policy text DEFAULT NULL,
    cdc_mode text DEFAULT NULL,
    append_only bool DEFAULT false,
    pooler_compatibility_mode bool DEFAULT false,
    partition_by text DEFAULT NULL,
    max_differential_joins int DEFAULT NULL,
    max_delta_fraction float8 DEFAULT NULL,
    engine text DEFAULT NULL
) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT pgtrickle._create(name, query, pg_catalog.jsonb_build_object(
        'schedule', schedule, 'refresh_mode', refresh_mode, 'initialize', initialize,
        'diamond_consistency', diamond_consistency, 'diamond_schedule_policy', diamond_schedule_policy, 'cdc_mode', cdc_mode,
        'append_only', append_only, 'pooler_compatibility_mode', pooler_compatibility_mode, 'partition_by', partition_by,
        'max_differential_joins', max_differential_joins, 'max_delta_fraction', max_delta_fraction, 'engine', engine), 'replace')
$$;
COMMENT ON FUNCTION pgtrickle.create_or_replace_stream_table(text, text, text, text, bool, text, text, text, bool, bool, text, int, float8, text) IS
'Like create_stream_table; an existing stream table gets the new definition, see alter_stream_table.';

CREATE OR REPLACE FUNCTION pgtrickle.alter_stream_table(
    name text,
    query text DEFAULT NULL,
    schedule text DEFAULT NULL,
    refresh_mode text DEFAULT NULL,
    status text DEFAULT NULL,
    diamond_consistency text DEFAULT NULL,
    diamond_schedule_policy text DEFAULT NULL,
    cdc_mode text DEFAULT NULL,
    append_only bool DEFAULT NULL,
    pooler_compatibility_mode bool DEFAULT NULL,
    tier text DEFAULT NULL,
    partition_by text DEFAULT NULL,
    max_differential_joins int DEFAULT NULL,
    max_delta_fraction float8 DEFAULT NULL,
    engine text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    id bigint;
    probe oid;
    options jsonb := pg_catalog.jsonb_build_object(
        'schedule', schedule, 'refresh_mode', refresh_mode, 'status', status,
        'diamond_consistency', diamond_consistency, 'diamond_schedule_policy', diamond_schedule_policy, 'cdc_mode', cdc_mode,
        'append_only', append_only, 'pooler_compatibility_mode', pooler_compatibility_mode, 'tier', tier,
        'partition_by', partition_by, 'max_differential_joins', max_differential_joins, 'max_delta_fraction', max_delta_fraction, 'engine', engine);
BEGIN
    PERFORM pgtrickle._require_primary();
    id := pgtrickle._find(name);
    options := pgtrickle._check_options(options) || pg_catalog.jsonb_build_object('session_settings', pgtrickle._session_settings());
    IF query IS NULL AND refresh_mode IS NOT NULL AND pgtrickle._reads_otherwise(id) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = pg_catalog.format('a source of %s was renamed, which its next refresh will follow', name),
            HINT = pg_catalog.format('Try again after CALL pgtrickle.refresh_and_wait(%L).', name);
    END IF;
    IF query IS NOT NULL THEN
        probe := pgtrickle._probe_here(query);
        IF probe IS NULL THEN
            PERFORM pgtrickle._request_definition(st.pgt_id, st.pgt_schema, st.pgt_name, query, options, pgtrickle._search_path())
            FROM pgtrickle.pgt_stream_tables AS st
            WHERE st.pgt_id = id;
            RETURN;
        END IF;
        PERFORM pgtrickle._warn_of_paths(probe);
    -- The engine decides how tables of other databases are read.
    ELSIF (refresh_mode IS NOT NULL OR engine IS NOT NULL) AND pgtrickle._reads_mirrors(id) THEN
        IF current_user OPERATOR(pg_catalog.=) pg_catalog.pg_get_userbyid(pgtrickle._keeper()) THEN
            PERFORM pgtrickle._require_author(id, true);
        END IF;
        PERFORM pgtrickle._request_definition(st.pgt_id, st.pgt_schema, st.pgt_name, st.original_query, options,
                                              pgtrickle._search_path())
        FROM pgtrickle.pgt_stream_tables AS st
        WHERE st.pgt_id = id;
        RETURN;
    ELSIF refresh_mode IS NOT NULL THEN
        PERFORM pgtrickle._require_author(id, false);
        probe := pgtrickle._probe((SELECT st.defining_query FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = id));
    END IF;
    PERFORM pgtrickle._alter(id, probe, query, options);
    IF probe IS NOT NULL THEN
        PERFORM pgtrickle._drop_probe();
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle.alter_stream_table(text, text, text, text, text, text, text, text, bool, bool, text, text, int, float8, text) IS
'Changes what is not NULL. status is ACTIVE or SUSPENDED. A new query is checked as in create_stream_table and loaded; readers see the old content, in '
'the old columns, until the new content is ready. Grants and oid are kept.';

CREATE OR REPLACE FUNCTION pgtrickle._drop(id bigint, cascade bool, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._authorize(id, me);
    reader record;
    private name;
    pub name;
BEGIN
    IF cascade THEN
        -- what it reads, and may read it, must not come back to it
        DELETE FROM pgtrickle.pgt_dependencies AS d WHERE d.pgt_id = id;
    END IF;
    FOR reader IN
        SELECT DISTINCT t.pgt_id, format('%I.%I', t.pgt_schema, t.pgt_name) AS label
        FROM pgtrickle.pgt_dependencies AS d
        JOIN pgtrickle.pgt_stream_tables AS t ON t.pgt_id = d.pgt_id
        WHERE d.source_relid = st.pgt_relid AND d.pgt_id <> id
    LOOP
        IF NOT cascade THEN
            RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
                MESSAGE = format('stream table %s reads %I.%I', reader.label, st.pgt_schema, st.pgt_name),
                HINT = 'Drop it first, or use cascade => true.';
        END IF;
        -- a reader of two dropped tables is found twice
        IF EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = reader.pgt_id) THEN
            PERFORM pgtrickle._drop(reader.pgt_id, cascade, me);
        END IF;
    END LOOP;
    FOR reader IN SELECT e.reader_database FROM pgtrickle.pgt_readers AS e WHERE e.source_relid = st.pgt_relid LOOP
        IF NOT cascade THEN
            RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
                MESSAGE = format('database %I reads %I.%I', reader.reader_database, st.pgt_schema, st.pgt_name),
                HINT = 'Drop the stream tables there first, use cascade => true, or pgtrickle.detach_reader if it no longer exists.';
        END IF;
    END LOOP;
    DELETE FROM pgtrickle.pgt_readers AS e WHERE e.source_relid = st.pgt_relid;
    DELETE FROM pgtrickle.pgt_replicas AS p WHERE p.source_relid = st.pgt_relid;
    PERFORM pgtrickle._leave_groups(id);
    PERFORM pgtrickle._drop_guard(id);
    DELETE FROM pgtrickle.pgt_publications AS p WHERE p.pgt_id = id RETURNING p.publication INTO pub;
    IF EXISTS (SELECT FROM pg_publication AS p WHERE p.pubname = pub) THEN
        EXECUTE format('DROP PUBLICATION %I', pub);
    END IF;
    DELETE FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id;
    FOR private IN
        SELECT c.relname
        FROM pg_class AS c
        WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace AND c.relkind = 'r' AND c.relname ~ ('^(state|stage)_' || id || '(_|$)')
        ORDER BY c.relname DESC  -- the parts of a staged load before their parent
    LOOP
        EXECUTE format('DROP TABLE pgtrickle_changes.%I', private);
    END LOOP;
    -- In a database restored from a dump the oid may be that of any other table.
    IF EXISTS (SELECT FROM pg_class AS c
               JOIN pg_namespace AS n ON n.oid = c.relnamespace
               JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = '__pgt_row_id'
               WHERE c.oid = st.pgt_relid AND c.relkind IN ('r', 'p')
                 AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS t
                                 WHERE t.pgt_id <> id AND t.pgt_name = c.relname AND t.pgt_schema = n.nspname)) THEN
        BEGIN
            EXECUTE format('DROP TABLE %s %s', st.pgt_relid::regclass, CASE WHEN cascade THEN 'CASCADE' ELSE '' END);
        EXCEPTION WHEN dependent_objects_still_exist THEN
            RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
                MESSAGE = format('other objects depend on %I.%I', st.pgt_schema, st.pgt_name),
                HINT = 'Drop them first, or use cascade => true.';
        END;
    END IF;
    PERFORM pgtrickle._wake('drop', id);
END
$$;
COMMENT ON FUNCTION pgtrickle._drop(bigint, bool, text) IS 'Internal. Removes storage, hidden state, publication and catalog rows.';

CREATE OR REPLACE FUNCTION pgtrickle.drop_stream_table(name text, cascade bool DEFAULT false) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pgtrickle._require_primary();
    -- one that reads other databases and is not there yet, or was refused
    IF (SELECT pgtrickle._forget_definition(n.schema_name, n.table_name) FROM pgtrickle._parse_name(name) AS n) THEN
        RETURN;
    END IF;
    PERFORM pgtrickle._drop(pgtrickle._find(name), cascade);
END
$$;
COMMENT ON FUNCTION pgtrickle.drop_stream_table(text, bool) IS
'Drops a stream table, its content, its publication and its subscribers; with cascade also the stream tables and views that read it. The control plane '
'then removes capture from sources that have no readers.';
