-- Buffers whose size permits more than %(rows)s changes, at 52 bytes for the smallest row. Much of the size may be free space.
-- Returns: oid of the source.
SELECT s.source_relid::int8
FROM pgtrickle.pgt_sources AS s
JOIN pg_catalog.pg_class AS b
  ON b.relnamespace = 'pgtrickle_changes'::pg_catalog.regnamespace AND b.relname = 'changes_' || s.source_relid
WHERE pg_catalog.pg_relation_size(b.oid) > %(rows)s::int8 * 52
ORDER BY 1
