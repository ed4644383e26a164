-- Definitions that read other databases and wait to be validated. Returns: schema, name, stream table to alter or NULL, query, options,
-- search_path, role, time of the request.
SELECT d.pgt_schema, d.pgt_name, d.pgt_id, d.query, d.options, d.search_path, coalesce(pgtrickle._author(d.created_by, d.created_key), ''), d.created_at
FROM pgtrickle.pgt_definitions AS d
WHERE NOT d.is_final
ORDER BY d.created_at
