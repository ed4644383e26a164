-- Relations and columns that a stream table reads and that have another name than in its query. %(id)s: pgt_id.
-- Returns nothing in a database that was restored from a dump, where the oids belong to other objects.
-- Returns: oid; schema and name in the query; schema and name now; the primary key in the syntax of ALTER TABLE, or NULL (a query that names all its columns
-- may depend on it in GROUP BY); columns as [[name now, name in the query or NULL if it does not name the column, type with collation], ...].
SELECT
    d.source_relid::int8,
    d.source_schema::text,
    d.source_name::text,
    n.nspname::text,
    c.relname::text,
    (SELECT pg_get_constraintdef(p.oid) FROM pg_constraint AS p WHERE p.conrelid = c.oid AND p.contype = 'p' AND NOT p.condeferrable
        AND p.conkey <@ d.columns_used),
    k.columns
FROM pgtrickle.pgt_dependencies AS d
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = d.pgt_id
JOIN pg_class AS c ON c.oid = d.source_relid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT
        coalesce(json_agg(json_build_array(
            a.attname, u.name, CASE
                -- the type may be in a schema that this role may not use
                WHEN u.name IS NULL THEN 'pg_catalog.int4'
                ELSE format_type(a.atttypid, a.atttypmod) || coalesce(' COLLATE ' || quote_ident(o.nspname) || '.' || quote_ident(l.collname), '')
            END
        ) ORDER BY a.attnum), '[]'),
        coalesce(bool_or(a.attname <> u.name), false)
    FROM pg_attribute AS a
    LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
    LEFT JOIN pg_namespace AS o ON o.oid = l.collnamespace
    LEFT JOIN unnest(d.columns_used, d.column_names) AS u (attnum, name) ON u.attnum = a.attnum
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
) AS k (columns, has_renamed)
WHERE d.pgt_id = %(id)s
  AND st.defined_in = pgtrickle._place()
  AND d.source_name IS NOT NULL
  AND ((n.nspname, c.relname) <> (d.source_schema, d.source_name) OR k.has_renamed)
ORDER BY d.source_relid
