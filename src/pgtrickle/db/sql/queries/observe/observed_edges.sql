-- What each stream table reads. No parameters. A mirror is a stream table of observed_tables.
SELECT d.pgt_id, d.source_relid::int8 AS relid, d.source_type AS kind, coalesce(n.nspname, d.source_schema, '?')::text AS schema,
       coalesce(c.relname, d.source_name, d.source_relid::text)::text AS name
FROM pgtrickle.pgt_dependencies AS d
LEFT JOIN pg_class AS c ON c.oid = d.source_relid
LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE d.source_type <> 'VIEW'
ORDER BY d.pgt_id, d.source_relid
