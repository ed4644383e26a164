-- What the mirrors that a stream table reads replace. %(id)s: its pgt_id.
-- Returns: name of the mirror; the parts of the name that a user would write in a query.
SELECT
    t.pgt_name::text,
    CASE
        WHEN c.oid IS NOT NULL THEN ARRAY[n.nspname::text, c.relname::text]
        ELSE ARRAY[m.origin_database || coalesce('@' || nullif(m.origin_server, ''), ''), m.origin_schema::text, m.origin_table::text]
    END
FROM pgtrickle.pgt_dependencies AS d
JOIN pgtrickle.pgt_stream_tables AS t ON t.pgt_relid = d.source_relid
JOIN pgtrickle.pgt_mirrors AS m ON m.pgt_id = t.pgt_id
LEFT JOIN pg_class AS c ON c.oid = m.local_relid
LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE d.pgt_id = %(id)s
