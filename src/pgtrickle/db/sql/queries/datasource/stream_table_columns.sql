-- The stream table with this name and its visible columns, for Spark's data source. A name without a schema is one of schema public. %(name)s: the name.
-- Returns: schema, name, whether it is loaded, json [names of columns]. Raises when there is no such stream table.
SELECT st.pgt_schema, st.pgt_name, st.is_populated,
       (SELECT coalesce(pg_catalog.json_agg(a.attname ORDER BY a.attnum), '[]')
        FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = st.pgt_relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname !~ '^__pgt_')
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_id = pgtrickle._find(CASE WHEN pg_catalog.cardinality(pg_catalog.parse_ident(%(name)s)) = 1 THEN 'public.' ELSE '' END || %(name)s)
