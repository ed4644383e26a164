-- Relations of this database that are tables of other databases, by the stream tables that read them, or their mirrors.
-- Returns: pgt_id, creator, oid, schema, name, the database, host and port that the foreign server names (NULL: not said),
-- origin (array: database, schema, table), the declaring role (NULL: a foreign table), whether the creator has a user mapping,
-- the user that it names (NULL: not said, or not ours to read), its password, whether a superuser has vouched for it (password_required is off),
-- columns json [{attnum, name, origin_name, type, collation}]; when it is served by a mirror: key of the database and oid of the table that it
-- mirrors, its columns json [{name, attnum (at the origin), type}], its pgt_id.
WITH used AS (
    SELECT d.pgt_id, d.source_relid AS relid, NULL::text AS served_key, NULL::int8 AS served_relid, NULL::json AS served_columns, NULL::int8 AS mirror
    FROM pgtrickle.pgt_dependencies AS d
    WHERE d.source_type = 'FOREIGN_TABLE'
       OR EXISTS (SELECT FROM pgtrickle.pgt_shared_sources AS s WHERE s.local_relid = d.source_relid)
    UNION ALL
    SELECT
        d.pgt_id,
        m.local_relid,
        m.origin_key,
        m.origin_relid::int8,
        (
            SELECT json_agg(json_build_object('name', a.attname, 'attnum', u.attnum, 'type', format_type(a.atttypid, a.atttypmod)))
            FROM unnest(m.columns_used) WITH ORDINALITY AS u(attnum, position)
            JOIN pg_attribute AS a ON a.attrelid = t.pgt_relid AND a.attnum = u.position
        ),
        m.pgt_id
    FROM pgtrickle.pgt_mirrors AS m
    JOIN pgtrickle.pgt_stream_tables AS t ON t.pgt_id = m.pgt_id
    JOIN pgtrickle.pgt_dependencies AS d ON d.source_relid = t.pgt_relid
    WHERE m.local_relid IS NOT NULL
)
SELECT
    u.pgt_id,
    coalesce(pgtrickle._author(st.created_by, st.created_key), ''),
    u.relid::int8,
    n.nspname,
    c.relname,
    f.dbname,
    f.host,
    f.port,
    CASE WHEN s.origin IS NOT NULL THEN s.origin
         WHEN f.is_postgres THEN ARRAY[f.dbname, coalesce(f.schema_name, n.nspname), coalesce(f.table_name, c.relname)] END,
    s.declared_by,
    f.mapping IS NOT NULL,
    f.remote_user,
    f.password,
    f.is_vouched,
    (
        SELECT coalesce(json_agg(json_build_object(
            'attnum', a.attnum,
            'name', a.attname,
            'origin_name', coalesce((SELECT o.option_value FROM pg_options_to_table(a.attfdwoptions) AS o WHERE o.option_name = 'column_name'), a.attname),
            'type', format_type(a.atttypid, a.atttypmod),
            'collation', CASE WHEN a.attcollation <> t.typcollation AND a.attcollation <> 0
                              THEN (SELECT format('%%I.%%I', ln.nspname, l.collname) FROM pg_collation AS l
                                    JOIN pg_namespace AS ln ON ln.oid = l.collnamespace WHERE l.oid = a.attcollation) END
        ) ORDER BY a.attnum), '[]')
        FROM pg_attribute AS a
        JOIN pg_type AS t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ),
    u.served_key,
    u.served_relid,
    u.served_columns,
    u.mirror
FROM used AS u
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = u.pgt_id
LEFT JOIN pg_class AS c ON c.oid = u.relid
LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pgtrickle.pgt_shared_sources AS s ON s.local_relid = u.relid
LEFT JOIN LATERAL (
    SELECT
        w.fdwname = 'postgres_fdw' AS is_postgres,
        (SELECT o.option_value FROM pg_options_to_table(fs.srvoptions) AS o WHERE o.option_name = 'dbname') AS dbname,
        (SELECT o.option_value FROM pg_options_to_table(fs.srvoptions) AS o WHERE o.option_name = 'host') AS host,
        (SELECT o.option_value FROM pg_options_to_table(fs.srvoptions) AS o WHERE o.option_name = 'port') AS port,
        (SELECT o.option_value FROM pg_options_to_table(ft.ftoptions) AS o WHERE o.option_name = 'schema_name') AS schema_name,
        (SELECT o.option_value FROM pg_options_to_table(ft.ftoptions) AS o WHERE o.option_name = 'table_name') AS table_name,
        um.umid AS mapping,
        (SELECT o.option_value FROM pg_options_to_table(um.umoptions) AS o WHERE o.option_name = 'user') AS remote_user,
        (SELECT o.option_value FROM pg_options_to_table(um.umoptions) AS o WHERE o.option_name = 'password') AS password,
        EXISTS (SELECT FROM pg_options_to_table(um.umoptions) AS o WHERE o.option_name = 'password_required' AND NOT o.option_value::bool) AS is_vouched
    FROM pg_foreign_table AS ft
    JOIN pg_foreign_server AS fs ON fs.oid = ft.ftserver
    JOIN pg_foreign_data_wrapper AS w ON w.oid = fs.srvfdw
    LEFT JOIN LATERAL (
        SELECT m.umid, m.umoptions
        FROM pg_user_mappings AS m
        LEFT JOIN pg_roles AS r ON r.rolname = pgtrickle._author(st.created_by, st.created_key)
        WHERE m.srvid = fs.oid AND m.umuser IN (r.oid, 0)
        ORDER BY m.umuser DESC
        LIMIT 1
    ) AS um ON true
    WHERE ft.ftrelid = c.oid
) AS f ON true
WHERE st.refresh_mode <> 'FULL' OR st.engine = 'spark'
ORDER BY u.pgt_id, u.relid
