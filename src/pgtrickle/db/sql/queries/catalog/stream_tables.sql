-- Reads stream tables with everything that a refresh needs. The caller appends WHERE and ORDER BY.
-- Returns one row for each, in the order of the fields of model.catalog.StreamTable. These need an explanation:
-- sources: a JSON array of the relations that the query reads;
-- mirror: for a mirror, the table of another database that it copies;
-- frontiers: the merged frontiers of the stream tables that it reads (NULL unless the database has mirrors);
-- renamed: whether a relation or object that the query names was renamed, or a column that it reads was renamed or dropped;
-- author: the role whose privileges evaluate the query; then the settings and the resolved operators of that role's session;
-- lost privilege: what the author may not read any more, as text (NULL: no privilege is missing);
-- code: the versions of user-defined code, casts and checks that an evaluation can reach (NULL: it reaches only code of PostgreSQL);
-- engine, max_delta_fraction, max_differential_joins: NULL means that the setting applies;
-- base types: an object with the base types of columns of domain types (NULL: all types are built in);
-- keys: what the compiled form depends on and the content does not: unique keys, NOT NULL columns (not in mode FULL), type modifiers;
-- partition: the column by which it is partitioned (NULL: it is not partitioned), and the collation of this column;
-- remotes: the tables of other databases that it reads from their replicas (NULL: it reads none);
-- replaceable: whether another role can put something else in the place of what the query names (_hold_names).
SELECT
    st.pgt_id,
    st.pgt_relid::int8,
    st.pgt_schema,
    st.pgt_name,
    st.defining_query,
    st.output_columns,
    st.refresh_mode,
    st.effective_refresh_mode,
    ARRAY[to_jsonb(st.mode_reason_code), st.mode_reason_params],
    st.schedule,
    st.status,
    st.is_populated,
    st.frontier,
    st.epoch,
    st.needs_reinit,
    ARRAY[to_jsonb(st.reinit_reason_code), st.reinit_reason_params],
    st.definition_version,
    st.plan,
    st.refresh_requested_at,
    st.refresh_done_at,
    st.consecutive_errors,
    (
        SELECT coalesce(json_agg(json_build_object(
            'relid', d.source_relid::int8,
            'type', d.source_type,
            'columns', d.columns_used,
            'virtual', d.virtual_columns,
            'fingerprint', d.fingerprint
        )), '[]')
        FROM pgtrickle.pgt_dependencies AS d
        WHERE d.pgt_id = st.pgt_id
    ),
    st.last_full_ms,
    EXISTS (
        SELECT
        FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid = st.pgt_relid AND n.nspname = st.pgt_schema AND c.relname = st.pgt_name
    ),
    (
        SELECT md5(string_agg(p.oid || ':' || p.xmin, ',' ORDER BY p.oid))
        FROM pg_proc AS p
        WHERE p.oid = ANY (st.functions_used)
    ),
    st.created_at,
    (
        SELECT json_build_object(
            'key', m.origin_key,
            'server', m.origin_server,
            'database', m.origin_database,
            'schema', m.origin_schema,
            'table', m.origin_table,
            'relid', m.origin_relid::int8,
            'columns', m.columns_used,
            'fingerprint', m.fingerprint,
            'is_stored', m.is_stored
        )
        FROM pgtrickle.pgt_mirrors AS m
        WHERE m.pgt_id = st.pgt_id
    ),
    CASE WHEN (SELECT EXISTS (SELECT FROM pgtrickle.pgt_mirrors)) THEN (
        -- If two frontiers differ, the older one is returned: jsonb_object_agg keeps the last value of a key.
        SELECT coalesce(jsonb_object_agg(f.key, f.value ORDER BY pg_snapshot_xmax((f.value ->> 'snapshot')::pg_snapshot) DESC), '{}')
        FROM pgtrickle.pgt_dependencies AS d
        JOIN pgtrickle.pgt_stream_tables AS u ON u.pgt_relid = d.source_relid
        CROSS JOIN LATERAL jsonb_each(u.frontier) AS f
        WHERE d.pgt_id = st.pgt_id
    ) END,
    st.pooler_compatibility_mode,
    EXISTS (
        SELECT
        FROM pgtrickle.pgt_names AS k
        WHERE k.pgt_id = st.pgt_id AND pgtrickle._is_called_otherwise(k.classid, k.objid, k.objsubid, k.name)
    )
    OR EXISTS (
        SELECT
        FROM pgtrickle.pgt_dependencies AS d
        WHERE d.pgt_id = st.pgt_id
          AND (
              pgtrickle._is_renamed(d.source_relid, d.source_schema, d.source_name)
              -- Renamed and dropped columns of relations without a fingerprint; for the others the fingerprint changes.
              OR ((st.effective_refresh_mode = 'FULL' OR d.source_type NOT IN ('TABLE', 'STREAM_TABLE'))
                  AND EXISTS (
                      SELECT
                      FROM pg_attribute AS a
                      WHERE a.attrelid = d.source_relid
                        AND a.attnum = ANY (d.columns_used)
                        AND a.attname <> d.column_names[array_position(d.columns_used, a.attnum)]
                  ))
          )
    ),
    coalesce(author.name, st.created_by)::text,
    st.run_as,
    st.session_settings,
    st.operators::int8[],
    -- The function finds out which privilege is missing. It is expensive, so it is called only if one may be missing.
    CASE WHEN NOT st.is_judged OR st.run_as = 'author' OR to_regrole(quote_ident(author.name)) IS NULL
        OR EXISTS (
            SELECT
            FROM pgtrickle.pgt_privileges AS p
            JOIN pg_class AS c ON c.oid = p.relid
            WHERE p.pgt_id = st.pgt_id
              AND (
                  c.relrowsecurity
                  OR p.lost_elsewhere IS NOT NULL
                  OR NOT has_table_privilege(p.reader, p.relid, 'SELECT')
                  OR NOT has_schema_privilege(p.reader, c.relnamespace, 'USAGE')
              )
        )
        OR EXISTS (
            SELECT
            FROM unnest(st.functions_used) AS f (funcid)
            WHERE NOT has_function_privilege(to_regrole(quote_ident(author.name))::oid, f.funcid, 'EXECUTE')
        )
        THEN pgtrickle._lost_privilege(st.pgt_id)
    END,
    CASE WHEN st.functions_reached <> '{}' OR st.types_reached <> '{}' OR st.tables_of_others <> '{}'
        THEN pgtrickle._code_version(st.functions_reached, st.types_reached, st.tables_of_others)
    END,
    st.engine,
    st.max_delta_fraction,
    st.max_differential_joins,
    CASE WHEN jsonb_path_exists(st.output_columns, '$[*].typid ? (@ >= 16384)') THEN (
        SELECT jsonb_object_agg(c ->> 'typid', pgtrickle._base_type((c ->> 'typid')::oid)::int8)
        FROM jsonb_array_elements(st.output_columns) AS c
    ) END,
    (
        SELECT string_agg(
            concat_ws(
                '/',
                d.source_relid,
                CASE WHEN st.effective_refresh_mode <> 'FULL' AND d.source_type = 'TABLE'
                     THEN coalesce(pgtrickle._key(d.source_relid)::text, '-') END,
                (
                    SELECT string_agg(concat(
                        a.attnum,
                        CASE WHEN a.atttypmod <> -1 THEN ':' || a.atttypmod END,
                        CASE WHEN a.attnotnull AND st.effective_refresh_mode <> 'FULL'
                                  AND NOT EXISTS (SELECT FROM pg_constraint AS k
                                                  WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND NOT k.convalidated
                                                    AND k.conkey = ARRAY[a.attnum])
                             THEN '!' END
                    ), ',' ORDER BY a.attnum)
                    FROM pg_attribute AS a
                    WHERE a.attrelid = d.source_relid AND a.attnum = ANY (d.columns_used) AND (a.attnotnull OR a.atttypmod <> -1)
                )
            ), ' ' ORDER BY d.source_relid
        )
        FROM pgtrickle.pgt_dependencies AS d
        WHERE d.pgt_id = st.pgt_id AND d.source_type IN ('TABLE', 'STREAM_TABLE')
    ),
    CASE WHEN st.partition_by IS NOT NULL THEN (SELECT p.column_name FROM pgtrickle._partitioning(st.partition_by) AS p) END,
    CASE WHEN st.partition_by IS NOT NULL THEN (
        SELECT format('%%I.%%I', n.nspname, l.collname)
        FROM pgtrickle._partitioning(st.partition_by) AS p
        JOIN pg_attribute AS a ON a.attrelid = st.pgt_relid AND a.attname = p.column_name
        JOIN pg_collation AS l ON l.oid = a.attcollation
        JOIN pg_namespace AS n ON n.oid = l.collnamespace
    ) END,
    CASE WHEN (SELECT EXISTS (SELECT FROM pgtrickle.pgt_mirrors AS m WHERE NOT m.is_stored)) THEN (
        SELECT json_agg(json_build_object(
            'relid', u.pgt_relid::int8,
            'mirror_id', m.pgt_id,
            'key', m.origin_key,
            'server', m.origin_server,
            'database', m.origin_database,
            'schema', m.origin_schema,
            'table', m.origin_table,
            'origin_relid', m.origin_relid::int8,
            'columns', m.columns_used,
            'fingerprint', m.fingerprint
        ) ORDER BY m.pgt_id)
        FROM pgtrickle.pgt_dependencies AS d
        JOIN pgtrickle.pgt_stream_tables AS u ON u.pgt_relid = d.source_relid
        JOIN pgtrickle.pgt_mirrors AS m ON m.pgt_id = u.pgt_id
        WHERE d.pgt_id = st.pgt_id AND NOT m.is_stored
    ) END,
    EXISTS (
        SELECT
        FROM pgtrickle.pgt_names AS k
        WHERE k.pgt_id = st.pgt_id AND k.classid IN ('pg_type'::regclass, 'pg_class'::regclass)
    )
    OR EXISTS (SELECT FROM pgtrickle.pgt_dependencies AS d WHERE d.pgt_id = st.pgt_id AND pgtrickle._is_replaceable(d.source_relid))
FROM pgtrickle.pgt_stream_tables AS st
CROSS JOIN LATERAL (
    -- The usual case of _author(), without a function call: the role still has its name.
    SELECT CASE WHEN to_regrole(quote_ident(st.created_by))::oid::text = split_part(st.created_key, '/', 2)
        THEN st.created_by ELSE pgtrickle._author(st.created_by, st.created_key) END
    OFFSET 0
) AS author (name)
