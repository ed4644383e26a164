-- Creating and altering. The public functions run with the caller's rights: the query is parsed, typed and its privileges are checked
-- by PostgreSQL as the caller, through a temporary view. The owner of the view proves who the caller is: _register and _alter
-- (SECURITY DEFINER) trust nothing else, and check again, because anybody may call them directly.

CREATE OR REPLACE FUNCTION pgtrickle._check_options(options jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o jsonb := jsonb_strip_nulls(options);
    rule record;
    value text;
BEGIN
    IF o ? 'schedule' THEN
        o := o || jsonb_build_object('schedule', pgtrickle._check_schedule(o ->> 'schedule'));
    END IF;
    IF o ? 'refresh_mode' THEN
        o := o || jsonb_build_object('refresh_mode', upper(btrim(o ->> 'refresh_mode')));
    END IF;
    FOR rule IN
        SELECT *
        FROM (VALUES ('refresh_mode', '{AUTO,DIFFERENTIAL,FULL,IMMEDIATE}'::text[]),
                     ('diamond_consistency', '{none,atomic}'),
                     ('diamond_schedule_policy', '{fastest,slowest}'),
                     ('cdc_mode', '{auto,trigger}'),
                     ('engine', '{auto,spark,postgres}'),
                     ('tier', '{hot,warm,cold,frozen,auto}'),
                     ('status', '{ACTIVE,SUSPENDED}')) AS r(option, allowed)
    LOOP
        value := o ->> rule.option;
        IF value IS NULL THEN
            CONTINUE;
        END IF;
        value := btrim(CASE WHEN rule.allowed[1] = upper(rule.allowed[1]) THEN upper(value) ELSE lower(value) END);
        IF NOT value = ANY (rule.allowed) THEN
            RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
                MESSAGE = format('%s is not a %s', quote_literal(o ->> rule.option), rule.option),
                HINT = format('Use one of %s.', array_to_string(rule.allowed, ', '));
        END IF;
        o := o || jsonb_build_object(rule.option, value);
    END LOOP;
    IF (o ->> 'max_delta_fraction')::float8 NOT BETWEEN 0 AND 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('max_delta_fraction %s is out of range', o ->> 'max_delta_fraction'),
            HINT = 'It lies between 0 and 1.';
    END IF;
    IF (o ->> 'max_differential_joins')::int < 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('max_differential_joins %s is out of range', o ->> 'max_differential_joins'),
            HINT = 'It is 1 or more.';
    END IF;
    IF (o ->> 'append_only')::bool THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = 'append_only is not supported',
            HINT = 'Leave it out: updates and deletions of the sources are always applied, and insertions cost the same without it.';
    END IF;
    IF o ? 'partition_by' THEN
        PERFORM pgtrickle._partitioning(o ->> 'partition_by');
    END IF;
    RETURN o;
END
$$;
COMMENT ON FUNCTION pgtrickle._check_options(jsonb) IS 'Internal. Options in their stored form, unset ones removed; raises for the first that is wrong.';

CREATE OR REPLACE FUNCTION pgtrickle._visible_columns(relid oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format('q.%I', a.attname), ', ' ORDER BY a.attnum) FILTER (WHERE a.attname !~ '^__pgt_')
    FROM pg_attribute AS a
    WHERE a.attrelid = relid AND a.attnum > 0
    HAVING bool_or(a.attname ~ '^__pgt_')
$$;
COMMENT ON FUNCTION pgtrickle._visible_columns(oid) IS
'Internal. The columns of a relation without those of pgtrickle, as a list for a SELECT from q; NULL where it has none of these.';

-- No SET search_path: names in the query are resolved along the caller's.
CREATE OR REPLACE FUNCTION pgtrickle._probe(query text) RETURNS oid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c refcursor;
    stage text := 'open';
    state text;
    message text;
    hint text;
    visible text;
BEGIN
    IF query IS NULL OR query ~ '^\s*$' THEN
        RAISE EXCEPTION USING ERRCODE = 'syntax_error',
            MESSAGE = 'the query is empty', HINT = 'Write a SELECT.';
    END IF;
    BEGIN
        -- A cursor takes exactly one statement that returns rows, and opening it checks privileges without fetching any.
        OPEN c FOR EXECUTE query;
        CLOSE c;
        stage := 'view';
        IF pg_catalog.to_regclass('pg_temp.__pgt_probe') IS NOT NULL THEN
            EXECUTE 'DROP VIEW pg_temp.__pgt_probe';
        END IF;
        EXECUTE 'CREATE TEMPORARY VIEW __pgt_probe AS ' || query;
        visible := pgtrickle._visible_columns(pg_catalog.to_regclass('pg_temp.__pgt_probe'));
        -- The star of a stream table: without its hidden columns. Not where rows are compared, in which those count.
        IF visible IS NOT NULL AND query OPERATOR(pg_catalog.!~*) '\m(__pgt_\w*|distinct|union|intersect|except|natural)\M' THEN
            EXECUTE 'DROP VIEW pg_temp.__pgt_probe';
            EXECUTE pg_catalog.format(E'CREATE TEMPORARY VIEW __pgt_probe AS SELECT %s FROM (%s\n) AS q', visible,
                                      pg_catalog.regexp_replace(query, ';\s*$', ''));
        END IF;
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
        message := pg_catalog.regexp_replace(message, '\s*\n\s*', ' ', 'g');
        IF state = '42P11' AND message ~ 'multi-query' THEN
            message := 'the query is more than one statement, or none';
            hint := 'Write a single SELECT.';
        ELSIF state = '42P11' OR (state = '42601' AND stage = 'view') THEN
            state := '42601';
            message := 'the query is not a SELECT';
            hint := 'Write a single SELECT, VALUES or WITH ... SELECT that only reads.';
        ELSIF state = '25006' AND stage = 'view' THEN
            message := 'this transaction is read-only, and a query is analysed through a temporary view';
            hint := 'Call it in a transaction that may write.';
        ELSIF state = '42P02' THEN
            message := 'the query has a parameter: ' || message;
            hint := 'A defining query has no parameters; write the value itself.';
        ELSIF state = '42701' AND stage = 'view' THEN
            message := 'the query is not valid: ' || message;
            hint := 'Give each output column a name of its own with AS.';
        ELSIF state = '42501' THEN
            hint := coalesce(nullif(hint, ''), 'You need SELECT on everything that the query reads, and USAGE on its schema.');
        ELSE
            message := 'the query is not valid: ' || message;
            hint := coalesce(nullif(hint, ''), CASE
                WHEN state IN ('42P01', '42703', '42883', '3F000') THEN 'Names are looked up along your search_path; qualify them.'
                ELSE 'Run the query by itself to see where.' END);
        END IF;
        RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message, HINT = hint;
    END;
    IF query ~* '(?:''\s*(?:now|today|tomorrow|yesterday)\s*''\s*::\s*(?:pg_catalog\.)?(?:date|time)|\m(?:date|timetz|time|timestamptz|'
        'timestamp)(?:\s+with(?:out)?\s+time\s+zone)?\s*''\s*(?:now|today|tomorrow|yesterday)\s*'')' THEN
        RAISE WARNING USING
            MESSAGE = 'a constant such as ''now'' or ''today'' has been replaced by its value at this moment',
            HINT = 'Use now() or current_date for the current time; the stream table is then refreshed in FULL mode.';
    END IF;
    RETURN 'pg_temp.__pgt_probe'::pg_catalog.regclass::oid;
END
$$;
COMMENT ON FUNCTION pgtrickle._probe(text) IS
'Internal. A temporary view over the query, made as the caller; raises one clear line when PostgreSQL refuses it.';

CREATE OR REPLACE FUNCTION pgtrickle._drop_probe() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    EXECUTE 'DROP VIEW pg_temp.__pgt_probe';
END
$$;
COMMENT ON FUNCTION pgtrickle._drop_probe() IS 'Internal. Removes what _probe made.';

-- Formatting settings are pinned so that constants in the deparsed text mean the same in every session.
CREATE OR REPLACE FUNCTION pgtrickle._describe(probe oid, OUT defining_query text, OUT output_columns jsonb, OUT obstacle jsonb)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET extra_float_digits = 1
SET quote_all_identifiers = off AS $$
BEGIN
    defining_query := pgtrickle._query_text(probe);
    SELECT jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'typid', a.atttypid::int8,
                                        'typmod', a.atttypmod, 'collation', a.attcollation::int8) ORDER BY a.attnum)
    INTO output_columns
    FROM pg_attribute AS a
    WHERE a.attrelid = probe AND a.attnum > 0;
    obstacle := pgtrickle._full_reason(probe);
END
$$;
COMMENT ON FUNCTION pgtrickle._describe(oid) IS 'Internal. Normalised text, typed columns and differential obstacle of a probed query.';

CREATE OR REPLACE FUNCTION pgtrickle._effective_mode(refresh_mode text, obstacle jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF refresh_mode = 'FULL' OR (refresh_mode = 'AUTO' AND obstacle IS NOT NULL) THEN
        RETURN 'FULL';
    END IF;
    IF obstacle IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = format('%s is not possible: %s', refresh_mode, pgtrickle._reason_text(obstacle)),
            HINT = 'Use refresh_mode AUTO or FULL, or rewrite the query'
                || coalesce(': ' || pgtrickle._reason_hint(obstacle ->> 'code', obstacle -> 'params'), '.');
    END IF;
    RETURN CASE refresh_mode WHEN 'AUTO' THEN 'DIFFERENTIAL' ELSE refresh_mode END;
END
$$;
COMMENT ON FUNCTION pgtrickle._effective_mode(text, jsonb) IS 'Internal. The mode that refreshes will use; raises when the mode asked for is impossible.';

CREATE OR REPLACE FUNCTION pgtrickle._column_definitions(output_columns jsonb) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(format('%I %s%s', c ->> 'name', c ->> 'type',
                            CASE WHEN (c ->> 'collation')::oid <> 0 AND (c ->> 'collation')::oid <> t.typcollation
                                 THEN format(' COLLATE %I.%I', n.nspname, l.collname) ELSE '' END) ORDER BY i)
           || '__pgt_row_id bigint NOT NULL'::text
    FROM jsonb_array_elements(output_columns) WITH ORDINALITY AS e(c, i)
    JOIN pg_type AS t ON t.oid = (c ->> 'typid')::oid
    LEFT JOIN pg_collation AS l ON l.oid = (c ->> 'collation')::oid
    LEFT JOIN pg_namespace AS n ON n.oid = l.collnamespace
$$;
COMMENT ON FUNCTION pgtrickle._column_definitions(jsonb) IS
'Internal. The columns of a storage table as CREATE TABLE wants them: same types, modifiers and collations, then __pgt_row_id.';

CREATE OR REPLACE FUNCTION pgtrickle._key(source oid) RETURNS int2[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.indkey::int2[]
    FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indrelid AND c.relkind IN ('r', 'p')
    WHERE i.indrelid = source AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
      AND i.indnkeyatts = i.indnatts
      AND NOT EXISTS (SELECT FROM pg_attribute AS a
                      WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) AND NOT a.attnotnull)
      -- PostgreSQL 18: rows from before a constraint that is NOT VALID may have NULLs.
      AND NOT EXISTS (SELECT FROM pg_constraint AS k
                      WHERE k.conrelid = i.indrelid AND k.contype = 'n' AND NOT k.convalidated AND k.conkey <@ i.indkey::int2[])
    ORDER BY NOT i.indisprimary, i.indnatts, i.indexrelid
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._key(oid) IS
'Internal. The columns of a unique index of a table that hold no NULLs, the primary key first; NULL when there is none.';

CREATE OR REPLACE FUNCTION pgtrickle._may_read_all_columns(role oid, relation oid) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT has_table_privilege(role, relation, 'SELECT')
        OR NOT EXISTS (SELECT FROM pg_attribute AS a
                       WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
                         AND NOT has_column_privilege(role, relation, a.attnum, 'SELECT'))
$$;
COMMENT ON FUNCTION pgtrickle._may_read_all_columns(oid, oid) IS 'Internal. Whether a role may read whole rows of a relation.';

CREATE OR REPLACE FUNCTION pgtrickle._store_dependencies(id bigint, probe oid, author oid, mirrors oid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    looks_back bool := pgtrickle._looks_back(probe);
    keeper CONSTANT oid := pgtrickle._keeper();
    -- as in _full_reason: a row as a value shows the names of all columns
    shows_rows CONSTANT bool := EXISTS (SELECT FROM pgtrickle._rules(probe) AS r WHERE r.node_tree ~ '\{VAR :varno \d+ :varattno 0 ');
BEGIN
    DELETE FROM pgtrickle.pgt_dependencies AS d WHERE d.pgt_id = id;
    INSERT INTO pgtrickle.pgt_dependencies
        (pgt_id, source_relid, source_type, columns_used, source_schema, source_name, column_names, virtual_columns)
    SELECT id, r.relid,
           CASE WHEN EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_relid = r.relid) THEN 'STREAM_TABLE'
                WHEN c.relkind = 'v' THEN 'VIEW'
                WHEN c.relkind = 'm' THEN 'MATVIEW'
                WHEN c.relkind = 'f' THEN 'FOREIGN_TABLE'
                ELSE 'TABLE' END,
           r.columns, n.nspname, c.relname, pgtrickle._column_names(r.relid, r.columns),
           ARRAY(SELECT a.attnum FROM pg_attribute AS a
                 WHERE a.attrelid = r.relid AND a.attnum = ANY (r.columns) AND a.attgenerated = 'v' ORDER BY a.attnum)
    FROM (
        SELECT x.relid, coalesce(array_agg(DISTINCT a.attnum ORDER BY a.attnum) FILTER (WHERE a.attnum IS NOT NULL), '{}') AS columns
        FROM pgtrickle._columns_read(probe) AS x
        LEFT JOIN LATERAL unnest(
            x.columns
            || CASE WHEN looks_back THEN pgtrickle._key(x.relid) END
            || ARRAY(SELECT b FROM unnest(x.columns) AS u(attnum), pgtrickle._virtual_basis(x.relid, u.attnum) AS b)
            || CASE WHEN shows_rows THEN ARRAY(SELECT p.attnum FROM pg_attribute AS p
                                               WHERE p.attrelid = x.relid AND p.attnum > 0 AND NOT p.attisdropped) END) AS a(attnum) ON true
        GROUP BY x.relid
    ) AS r
    JOIN pg_class AS c ON c.oid = r.relid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace;
    UPDATE pgtrickle.pgt_stream_tables AS st
    SET functions_used = coalesce((SELECT array_agg(f.funcid ORDER BY f.funcid) FROM pgtrickle._functions_called(probe) AS f
                                   WHERE NOT f.is_system), '{}'),
        functions_reached = reached.functions,
        types_reached = reached.types,
        tables_of_others = ARRAY(SELECT DISTINCT f.relid
                                 FROM pgtrickle._reads(probe) AS x
                                 CROSS JOIN LATERAL pgtrickle._family(x.relid) AS f
                                 JOIN pg_class AS c ON c.oid = f.relid AND NOT pgtrickle._is_ours(c.relowner, keeper, false)),
        is_judged = true,
        defined_in = pgtrickle._place()
    FROM (SELECT coalesce(array_agg(r.objid ORDER BY r.objid) FILTER (WHERE r.classid = 'pg_proc'::regclass), '{}') AS functions,
                 coalesce(array_agg(r.objid ORDER BY r.objid) FILTER (WHERE r.classid = 'pg_type'::regclass), '{}') AS types
          FROM pgtrickle._reach(probe, keeper, false) AS r
          WHERE r.objid >= 16384) AS reached
    WHERE st.pgt_id = id;
    -- What _check_rights has just found to be there. The keeper itself is refused by PostgreSQL.
    DELETE FROM pgtrickle.pgt_privileges AS p WHERE p.pgt_id = id;
    INSERT INTO pgtrickle.pgt_privileges (pgt_id, relid, reader, is_named, columns, is_elsewhere)
    SELECT id, x.relid, x.run_as, x.via = probe,
           coalesce(array_agg(DISTINCT a.attnum ORDER BY a.attnum) FILTER (WHERE a.attnum IS NOT NULL), '{}'), x.relid = ANY (mirrors)
    FROM pgtrickle._reads(probe, author) AS x
    JOIN pgtrickle._columns_read(probe) AS u ON u.via = x.via AND u.relid = x.relid
    -- 0: all columns, of which a whole row may consist. Who may not read all of them does not read whole rows: PostgreSQL has refused it.
    LEFT JOIN LATERAL unnest(u.columns || CASE WHEN shows_rows AND x.relid <> ALL (mirrors) AND pgtrickle._may_read_all_columns(x.run_as, x.relid)
                                               THEN 0::int2 END) AS a(attnum) ON true
    WHERE x.run_as <> keeper OR x.relid = ANY (mirrors)
    GROUP BY x.relid, x.run_as, x.via = probe;
    DELETE FROM pgtrickle.pgt_names AS k WHERE k.pgt_id = id;
    INSERT INTO pgtrickle.pgt_names (pgt_id, classid, objid, objsubid, name, in_text)
    SELECT id, n.classid, n.objid, n.objsubid, pgtrickle._name_of(n.classid, n.objid, n.objsubid), n.in_text
    FROM pgtrickle._names(probe) AS n
    WHERE pgtrickle._name_of(n.classid, n.objid, n.objsubid) IS NOT NULL;
    -- Types of columns are in the statements of refreshes, which are compiled again.
    INSERT INTO pgtrickle.pgt_names (pgt_id, classid, objid, objsubid, name, in_text)
    SELECT DISTINCT id, 'pg_type'::regclass::oid, a.atttypid, 0, format_type(a.atttypid, NULL), false
    FROM pg_attribute AS a
    LEFT JOIN pgtrickle.pgt_dependencies AS d ON d.pgt_id = id AND d.source_relid = a.attrelid
    WHERE (a.attrelid = probe OR a.attnum = ANY (d.columns_used))
      AND a.attrelid IN (SELECT probe UNION ALL SELECT p.source_relid FROM pgtrickle.pgt_dependencies AS p WHERE p.pgt_id = id)
      AND a.atttypid >= 16384
    ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION pgtrickle._store_dependencies(bigint, oid, oid, oid[]) IS 'Internal. Replaces what is known of what a stream table reads and calls.';

CREATE OR REPLACE FUNCTION pgtrickle._store_session(id bigint, probe oid, settings jsonb) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pgtrickle.pgt_stream_tables AS st
    SET session_settings = pgtrickle._check_settings(coalesce(settings, pgtrickle._session_settings('pg_catalog, pg_temp'))),
        operators = pgtrickle._operators(probe)
    WHERE st.pgt_id = id
$$;
COMMENT ON FUNCTION pgtrickle._store_session(bigint, oid, jsonb) IS
'Internal. Keeps what the query means in the session that defines it: settings (those of this session where none are given) and operators.';

CREATE OR REPLACE FUNCTION pgtrickle._reads_otherwise(id bigint, probe oid DEFAULT NULL) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT
                   FROM pgtrickle.pgt_dependencies AS d
                   JOIN pg_class AS c ON c.oid = d.source_relid
                   JOIN pg_namespace AS n ON n.oid = c.relnamespace
                   WHERE d.pgt_id = id
                     AND ((n.nspname, c.relname) <> (d.source_schema, d.source_name)
                          OR EXISTS (SELECT
                                     FROM unnest(d.columns_used, d.column_names) AS k(attnum, name)
                                     JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum AND NOT a.attisdropped
                                     WHERE a.attname <> k.name)))
        OR EXISTS (SELECT FROM pgtrickle.pgt_names AS k
                   WHERE k.pgt_id = id AND pgtrickle._is_called_otherwise(k.classid, k.objid, k.objsubid, k.name))
        OR (probe IS NOT NULL
            AND EXISTS (SELECT r.relid FROM pgtrickle._reads(probe) AS r
                        EXCEPT
                        SELECT d.source_relid FROM pgtrickle.pgt_dependencies AS d WHERE d.pgt_id = id))
$$;
COMMENT ON FUNCTION pgtrickle._reads_otherwise(bigint, oid) IS
'Internal. Whether a stream table reads or names something that was renamed and is not followed yet, or a probe of the same text reads something else.';

CREATE OR REPLACE FUNCTION pgtrickle._is_longer(before jsonb, now jsonb) RETURNS bool
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (SELECT FROM jsonb_array_elements(before) WITH ORDINALITY AS b(c, i) WHERE b.c IS DISTINCT FROM now -> (b.i::int - 1))
$$;
COMMENT ON FUNCTION pgtrickle._is_longer(jsonb, jsonb) IS 'Internal. Whether columns are the same as before, or the same with others behind them.';

CREATE OR REPLACE FUNCTION pgtrickle._dependents(relid oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- What PostgreSQL would drop along with the columns: views, foreign keys, policies, functions with a body in SQL. Not indexes, which go with them.
    SELECT string_agg(DISTINCT x.what, ', ' ORDER BY x.what)
    FROM (
        SELECT CASE WHEN r.oid IS NOT NULL THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
                    ELSE pg_describe_object(d.classid, d.objid, d.objsubid) END AS what
        FROM pg_depend AS d
        LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = relid AND d.refobjsubid > 0 AND d.deptype = 'n'
          AND (r.oid IS NULL OR r.ev_class <> relid)
          AND NOT (d.classid = 'pg_class'::regclass AND EXISTS (SELECT FROM pg_index AS i WHERE i.indexrelid = d.objid))
          AND NOT (d.classid = 'pg_constraint'::regclass AND EXISTS (SELECT FROM pg_constraint AS c WHERE c.oid = d.objid AND c.conrelid = relid))
          AND d.classid NOT IN ('pg_publication_rel'::regclass, 'pg_statistic_ext'::regclass)
    ) AS x
$$;
COMMENT ON FUNCTION pgtrickle._dependents(oid) IS 'Internal. What depends on columns of a table and keeps them from being dropped, in words; NULL: nothing.';

-- Changes the columns of the storage table to those of its definition, in the transaction that commits the load: until then readers see
-- the old content in the old columns. The relation is kept, and with it grants, publications and the oid.
CREATE OR REPLACE FUNCTION pgtrickle._reshape(id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
    drops text;
    present jsonb;
BEGIN
    SELECT * INTO STRICT st FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id;
    SELECT jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'typid', a.atttypid::int8,
                                        'typmod', a.atttypmod, 'collation', a.attcollation::int8) ORDER BY a.attnum)
               FILTER (WHERE a.attname !~ '^__pgt_'),
           string_agg(format('DROP COLUMN %I', a.attname), ', ')
    INTO present, drops
    FROM pg_attribute AS a
    WHERE a.attrelid = st.pgt_relid AND a.attnum > 0 AND NOT a.attisdropped;
    IF present = st.output_columns THEN
        RETURN;
    END IF;
    IF NOT pgtrickle._hold_storage(id) THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table',
            MESSAGE = format('the table %I.%I was dropped, renamed or moved to another schema', st.pgt_schema, st.pgt_name);
    END IF;
    PERFORM pgtrickle._unlist_publication(id);
    IF pgtrickle._is_longer(present, st.output_columns) THEN
        -- The columns that are there stay, with what depends on them.
        EXECUTE format('DELETE FROM %I.%I', st.pgt_schema, st.pgt_name);
        EXECUTE format('ALTER TABLE %I.%I ADD COLUMN %s', st.pgt_schema, st.pgt_name, array_to_string(
            (pgtrickle._column_definitions(st.output_columns))[jsonb_array_length(present) + 1 : jsonb_array_length(st.output_columns)], ', ADD COLUMN '));
        RETURN;
    END IF;
    EXECUTE format('TRUNCATE %I.%I', st.pgt_schema, st.pgt_name);
    EXECUTE format('ALTER TABLE %I.%I %s', st.pgt_schema, st.pgt_name, drops);
    EXECUTE format('ALTER TABLE %I.%I ADD COLUMN %s', st.pgt_schema, st.pgt_name,
                   array_to_string(pgtrickle._column_definitions(st.output_columns), ', ADD COLUMN '));
END
$$;
COMMENT ON FUNCTION pgtrickle._reshape(bigint) IS 'Internal. Gives a storage table the columns of its definition.';

-- Uses DELETE, which is captured, so that readers, also in other databases, delete the rows as well.
CREATE OR REPLACE FUNCTION pgtrickle._empty(id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
BEGIN
    UPDATE pgtrickle.pgt_stream_tables AS t
    SET is_populated = false, frontier = NULL, epoch = t.epoch + 1, updated_at = clock_timestamp()
    WHERE t.pgt_id = id
    RETURNING * INTO st;
    IF pgtrickle._hold_storage(id) THEN
        EXECUTE format('DELETE FROM %I.%I', st.pgt_schema, st.pgt_name);
    END IF;
    IF to_regclass(format('pgtrickle_changes.state_%s', id)) IS NOT NULL THEN
        EXECUTE format('DELETE FROM pgtrickle_changes.state_%s', id);
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._empty(bigint) IS 'Internal. Removes the content of a stream table, which is loaded again when it is resumed.';

CREATE OR REPLACE FUNCTION pgtrickle._check_probe(probe oid) RETURNS oid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner oid;
BEGIN
    -- Only a view that this session created for this purpose proves who the caller is.
    SELECT c.relowner INTO owner
    FROM pg_class AS c
    WHERE c.oid = probe AND c.relkind = 'v' AND c.relname = '__pgt_probe' AND c.relnamespace = pg_my_temp_schema();
    IF owner IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'this function is internal', HINT = 'Call pgtrickle.create_stream_table.';
    END IF;
    RETURN owner;
END
$$;
COMMENT ON FUNCTION pgtrickle._check_probe(oid) IS 'Internal. The role that made the probe; raises when it is not one.';

CREATE OR REPLACE FUNCTION pgtrickle._register_as(
    creator oid, mirrors oid[], probe oid, schema_name name, table_name name, original_query text, options jsonb
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    keeper CONSTANT oid := (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = current_user);
    qualified CONSTANT text := format('%I.%I', schema_name, table_name);
    o CONSTANT jsonb := jsonb_build_object('schedule', 'calculated', 'refresh_mode', 'AUTO') || pgtrickle._check_options(options);
    schema_oid oid;
    d record;
    effective text;
    reason jsonb;
    evaluator text;
    id bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('pgtrickle.create:' || qualified, 0));
    SELECT n.oid INTO schema_oid FROM pg_namespace AS n WHERE n.nspname = schema_name;
    IF schema_oid IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_schema_name',
            MESSAGE = format('schema %I does not exist', schema_name), HINT = format('CREATE SCHEMA %I', schema_name);
    END IF;
    IF schema_name ~ '^pg_' OR schema_name IN ('information_schema', 'pgtrickle', 'pgtrickle_changes') THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_schema_name',
            MESSAGE = format('a stream table cannot be created in schema %I', schema_name), HINT = 'Choose a schema of your own.';
    END IF;
    IF NOT has_schema_privilege(creator, schema_oid, 'CREATE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('permission denied for schema %I', schema_name),
            HINT = format('GRANT CREATE ON SCHEMA %I TO %I', schema_name, pg_get_userbyid(creator));
    END IF;
    IF NOT (has_schema_privilege(keeper, schema_oid, 'CREATE') AND has_schema_privilege(keeper, schema_oid, 'USAGE')) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%I, the role that installed pgtrickle, cannot create tables in schema %I', current_user, schema_name),
            HINT = format('GRANT USAGE, CREATE ON SCHEMA %I TO %I', schema_name, current_user);
    END IF;
    IF EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_schema = schema_name AND st.pgt_name = table_name) THEN
        RAISE EXCEPTION USING ERRCODE = 'duplicate_table',
            MESSAGE = format('stream table %s already exists', qualified),
            HINT = 'Use alter_stream_table or create_or_replace_stream_table, or drop it first.';
    END IF;
    IF EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = schema_oid AND c.relname = table_name)
       OR EXISTS (SELECT FROM pg_type AS t WHERE t.typnamespace = schema_oid AND t.typname = table_name AND t.typelem = 0) THEN
        RAISE EXCEPTION USING ERRCODE = 'duplicate_table',
            MESSAGE = format('a relation or type named %s already exists', qualified), HINT = 'Choose another name.';
    END IF;

    PERFORM pgtrickle._refuse_unusable(probe);
    PERFORM pgtrickle._check_rights(probe, keeper, creator, mirrors);
    evaluator := pgtrickle._who_evaluates(probe, creator, keeper);
    SELECT * INTO d FROM pgtrickle._describe(probe);
    effective := pgtrickle._effective_mode(o ->> 'refresh_mode', d.obstacle);
    reason := CASE WHEN effective = 'FULL' THEN d.obstacle END;

    PERFORM pgtrickle._create_storage(qualified, d.output_columns, o ->> 'partition_by');
    IF creator <> keeper THEN
        EXECUTE format('GRANT SELECT ON %s TO %I WITH GRANT OPTION', qualified, pg_get_userbyid(creator));
    END IF;

    INSERT INTO pgtrickle.pgt_stream_tables
        (pgt_relid, pgt_name, pgt_schema, defining_query, original_query, output_columns, schedule, refresh_mode, effective_refresh_mode,
         mode_reason_code, mode_reason_params, mode_reason,
         refresh_requested_at, refresh_tier, diamond_consistency, diamond_schedule_policy, cdc_mode, append_only,
         pooler_compatibility_mode, partition_by, max_differential_joins, max_delta_fraction, engine, created_by, tier_pinned, applied_from, run_as)
    VALUES
        (qualified::regclass::oid, table_name, schema_name, d.defining_query, original_query, d.output_columns, o ->> 'schedule',
         o ->> 'refresh_mode', effective, reason ->> 'code', reason -> 'params', pgtrickle._reason_text(reason),
         CASE WHEN coalesce((o ->> 'initialize')::bool, true) THEN clock_timestamp() END,
         coalesce(nullif(o ->> 'tier', 'auto'), 'hot'), o ->> 'diamond_consistency', o ->> 'diamond_schedule_policy', o ->> 'cdc_mode',
         coalesce((o ->> 'append_only')::bool, false), coalesce((o ->> 'pooler_compatibility_mode')::bool, false), o ->> 'partition_by',
         (o ->> 'max_differential_joins')::int, (o ->> 'max_delta_fraction')::float8, o ->> 'engine', pg_get_userbyid(creator),
         coalesce(o ->> 'tier' <> 'auto', false), o ->> 'applied_from', evaluator)
    RETURNING pgt_id INTO id;
    PERFORM pgtrickle._store_dependencies(id, probe, creator, mirrors);
    PERFORM pgtrickle._guard_sources(id);
    PERFORM pgtrickle._store_session(id, probe, o -> 'session_settings');
    PERFORM pgtrickle._wake('create', id);
    RETURN id;
END
$$;
COMMENT ON FUNCTION pgtrickle._register_as(oid, oid[], oid, name, name, text, jsonb) IS
'Internal. Creates storage and catalog rows for a probed query of a role, whose rights on the mirrors in it were checked elsewhere.';

CREATE OR REPLACE FUNCTION pgtrickle._register(probe oid, schema_name name, table_name name, original_query text, options jsonb)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle._register_as(pgtrickle._check_probe(probe), '{}', probe, schema_name, table_name, original_query, options);
END
$$;
COMMENT ON FUNCTION pgtrickle._register(oid, name, name, text, jsonb) IS 'Internal. Creates storage and catalog rows for a probed query.';

CREATE OR REPLACE FUNCTION pgtrickle._authorize(id bigint, me text) RETURNS pgtrickle.pgt_stream_tables
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT name := pgtrickle._caller(me);
    st pgtrickle.pgt_stream_tables;
BEGIN
    SELECT * INTO st FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id FOR UPDATE;
    IF st.pgt_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table',
            MESSAGE = format('stream table %s does not exist', id), HINT = 'It has just been dropped.';
    END IF;
    IF NOT pg_has_role(caller, current_user, 'USAGE')
       AND NOT coalesce((SELECT pg_has_role(caller, r.oid, 'USAGE') FROM pg_roles AS r
           WHERE r.rolname = pgtrickle._author(st.created_by, st.created_key)), false) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('must be the creator of stream table %I.%I', st.pgt_schema, st.pgt_name),
            HINT = format('It was created by %I.', st.created_by);
    END IF;
    RETURN st;
END
$$;
COMMENT ON FUNCTION pgtrickle._authorize(bigint, text) IS
'Internal, called by SECURITY DEFINER functions. Locks the catalog row; raises unless the caller has the role of the creator or of the installing role.';

CREATE OR REPLACE FUNCTION pgtrickle._alter_as(
    asker oid, mirrors oid[], st pgtrickle.pgt_stream_tables, probe oid, original_query text, options jsonb
) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id CONSTANT bigint := st.pgt_id;
    keeper CONSTANT oid := (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = current_user);
    o CONSTANT jsonb := pgtrickle._check_options(options);
    qualified CONSTANT text := format('%I.%I', st.pgt_schema, st.pgt_name);
    new_mode CONSTANT text := coalesce(o ->> 'refresh_mode', st.refresh_mode);
    -- Refreshes read with the privileges of the author, also if another role alters the table. If the author no longer exists, the caller becomes the author.
    author CONSTANT oid := coalesce((SELECT r.oid FROM pg_roles AS r WHERE r.rolname = pgtrickle._author(st.created_by, st.created_key)), asker);
    evaluator text := st.run_as;
    d record;
    new_columns jsonb;
    effective text := st.effective_refresh_mode;
    reason jsonb := CASE WHEN st.mode_reason_code IS NOT NULL THEN jsonb_build_object('code', st.mode_reason_code, 'params', st.mode_reason_params) END;
    reader text;
    cycle bigint[];
    cycle_now bigint[];
BEGIN
    IF probe IS NOT NULL THEN
        PERFORM pgtrickle._refuse_unusable(probe);
        PERFORM pgtrickle._check_rights(probe, keeper, author, mirrors);
        evaluator := pgtrickle._who_evaluates(probe, author, keeper);
        SELECT * INTO d FROM pgtrickle._describe(probe);
        effective := pgtrickle._effective_mode(new_mode, d.obstacle);
        reason := CASE WHEN effective = 'FULL' THEN d.obstacle END;
        new_columns := CASE WHEN original_query IS NOT NULL THEN d.output_columns END;
    END IF;
    PERFORM pgtrickle._check_repartition(st, o ->> 'partition_by', new_columns);

    IF probe IS NOT NULL AND original_query IS NOT NULL THEN
        IF NOT pgtrickle._is_longer(st.output_columns, d.output_columns) THEN
            reader := pgtrickle._dependents(st.pgt_relid);
            IF reader IS NOT NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
                    MESSAGE = format('the new query changes the columns of %s, which others depend on: %s', qualified, reader),
                    HINT = 'Keep the columns and add new ones behind them, or drop what depends on them first.';
            END IF;
            SELECT format('%I.%I', t.pgt_schema, t.pgt_name) INTO reader
            FROM pgtrickle.pgt_dependencies AS dep
            JOIN pgtrickle.pgt_stream_tables AS t ON t.pgt_id = dep.pgt_id
            WHERE dep.source_relid = st.pgt_relid AND dep.pgt_id <> id
            LIMIT 1;
            IF reader IS NOT NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
                    MESSAGE = format('the new query changes the columns of %s, which stream table %s reads', qualified, reader),
                    HINT = 'Drop the reader first, or keep the columns.';
            END IF;
            SELECT format('%I', e.reader_database) INTO reader FROM pgtrickle.pgt_readers AS e WHERE e.source_relid = st.pgt_relid LIMIT 1;
            IF reader IS NOT NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
                    MESSAGE = format('the new query changes the columns of %s, which database %s reads', qualified, reader),
                    HINT = 'Drop the stream tables there first, keep the columns, or use pgtrickle.detach_reader if it no longer exists.';
            END IF;
        END IF;
        cycle := pgtrickle._cycle_of(id);
        PERFORM pgtrickle._store_dependencies(id, probe, author, mirrors);
        PERFORM pgtrickle._guard_sources(id);
        PERFORM pgtrickle._store_session(id, probe, o -> 'session_settings');
        UPDATE pgtrickle.pgt_stream_tables AS t
        SET defining_query = d.defining_query, original_query = _alter_as.original_query, output_columns = d.output_columns,
            plan = NULL, definition_version = t.definition_version + 1, needs_reinit = true,
            reinit_reason_code = 'query_altered', reinit_reason_params = '{}', reinit_reason = pgtrickle._reason_text('query_altered', '{}'),
            status = CASE t.status WHEN 'SUSPENDED' THEN 'SUSPENDED' ELSE 'INITIALIZING' END,
            consecutive_errors = 0, last_error_code = NULL, last_error_message = NULL, refresh_requested_at = clock_timestamp(),
            created_by = pg_get_userbyid(author)
        WHERE t.pgt_id = id;
    END IF;

    UPDATE pgtrickle.pgt_stream_tables AS t
    SET refresh_mode = new_mode,
        effective_refresh_mode = effective,
        mode_reason_code = reason ->> 'code', mode_reason_params = reason -> 'params', mode_reason = pgtrickle._reason_text(reason),
        run_as = evaluator,
        plan = CASE WHEN effective = st.effective_refresh_mode THEN t.plan END,
        schedule = coalesce(o ->> 'schedule', t.schedule),
        status = CASE o ->> 'status'
                     WHEN 'SUSPENDED' THEN 'SUSPENDED'
                     WHEN 'ACTIVE' THEN CASE WHEN t.is_populated AND NOT t.needs_reinit THEN 'ACTIVE' ELSE 'INITIALIZING' END
                     ELSE t.status END,
        consecutive_errors = CASE WHEN o ->> 'status' = 'ACTIVE' THEN 0 ELSE t.consecutive_errors END,
        refresh_tier = coalesce(nullif(o ->> 'tier', 'auto'), t.refresh_tier),
        tier_pinned = coalesce(o ->> 'tier' <> 'auto', t.tier_pinned),
        diamond_consistency = coalesce(o ->> 'diamond_consistency', t.diamond_consistency),
        diamond_schedule_policy = coalesce(o ->> 'diamond_schedule_policy', t.diamond_schedule_policy),
        cdc_mode = coalesce(o ->> 'cdc_mode', t.cdc_mode),
        append_only = coalesce((o ->> 'append_only')::bool, t.append_only),
        pooler_compatibility_mode = coalesce((o ->> 'pooler_compatibility_mode')::bool, t.pooler_compatibility_mode),
        max_differential_joins = coalesce((o ->> 'max_differential_joins')::int, t.max_differential_joins),
        max_delta_fraction = coalesce((o ->> 'max_delta_fraction')::float8, t.max_delta_fraction),
        engine = coalesce(o ->> 'engine', t.engine),
        epoch = t.epoch + 1,
        updated_at = clock_timestamp()
    WHERE t.pgt_id = id;
    IF probe IS NOT NULL THEN
        cycle_now := pgtrickle._cycle_of(id);
        IF cycle_now <> '{}' THEN
            PERFORM pgtrickle._check_cycle(cycle_now);
        END IF;
        IF cycle <> cycle_now THEN
            PERFORM pgtrickle._redo(ARRAY(SELECT m FROM unnest(cycle || cycle_now) AS m GROUP BY m HAVING m <> id));
        END IF;
    END IF;
    PERFORM pgtrickle._wake('alter', id);
END
$$;
COMMENT ON FUNCTION pgtrickle._alter_as(oid, oid[], pgtrickle.pgt_stream_tables, oid, text, jsonb) IS
'Internal. Changes definition and options of a stream table whose catalog row is locked, fences running refreshes.';

CREATE OR REPLACE FUNCTION pgtrickle._alter(id bigint, probe oid, original_query text, options jsonb, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st CONSTANT pgtrickle.pgt_stream_tables := pgtrickle._authorize(id, me);
BEGIN
    PERFORM pgtrickle._alter_as(CASE WHEN probe IS NOT NULL THEN pgtrickle._check_probe(probe) END, '{}', st, probe, original_query, options);
END
$$;
COMMENT ON FUNCTION pgtrickle._alter(bigint, oid, text, jsonb, text) IS 'Internal. Changes definition and options of a stream table, fences running refreshes.';
