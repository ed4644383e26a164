-- Buffers whose files, indexes included, are larger than %(long_bytes)s bytes, whatever is in them.
-- Returns: oid of the source, size.
SELECT s.source_relid::int8, pg_catalog.pg_total_relation_size(b.oid)
FROM pgtrickle.pgt_sources AS s
JOIN pg_catalog.pg_class AS b
  ON b.relnamespace = 'pgtrickle_changes'::pg_catalog.regnamespace AND b.relname = 'changes_' || s.source_relid
WHERE pg_catalog.pg_relation_size(b.oid) > %(long_bytes)s
ORDER BY 1
