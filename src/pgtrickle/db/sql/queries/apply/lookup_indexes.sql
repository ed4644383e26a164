-- The indexes that refreshes use to find rows of a stream table. %(table)s: its quoted qualified name.
-- Returns: name of the index, its column. Ordered by name.
SELECT c.relname, a.attname
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = %(table)s::pg_catalog.regclass AND pg_catalog.starts_with(c.relname, '__pgt_lookup_')
ORDER BY 1
