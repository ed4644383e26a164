-- Sources whose buffers nobody needs: captured tables without readers in this database or in others and without subscribers; dropped tables; and buffers
-- that are not recorded in pgt_sources. No parameters. Returns: oid of the source.
SELECT s.source_relid::int8
FROM pgtrickle.pgt_sources AS s
WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies AS d WHERE d.source_relid = s.source_relid)
  AND NOT EXISTS (SELECT FROM pgtrickle.pgt_readers AS e WHERE e.source_relid = s.source_relid)
  AND NOT EXISTS (SELECT FROM pgtrickle.pgt_replicas AS p WHERE p.source_relid = s.source_relid AND p.origin = pgtrickle._origin())
  AND NOT EXISTS (SELECT
                  FROM pgtrickle.pgt_subscribers AS u
                  JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = u.pgt_id
                  WHERE st.pgt_relid = s.source_relid)
   OR NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = s.source_relid)
UNION
SELECT pg_catalog.substr(b.relname, 9)::int8
FROM pg_catalog.pg_class AS b
WHERE b.relnamespace = 'pgtrickle_changes'::pg_catalog.regnamespace
  AND b.relkind = 'r'
  AND b.relname ~ '^changes_[0-9]+$'
  AND NOT EXISTS (SELECT FROM pgtrickle.pgt_sources AS s WHERE s.source_relid = pg_catalog.substr(b.relname, 9)::oid)
ORDER BY 1
