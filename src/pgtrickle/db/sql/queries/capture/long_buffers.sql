-- Buffers that have grown past %(long_bytes)s bytes and have no valid index on xid.
-- None while some transaction is older than 10 s: building an index concurrently would wait for it, and writers would maintain a
-- half-built index meanwhile. (A matter of cost only, so pg_stat_activity will do.)
-- Returns: oid of the source, whether an invalid index has to go first.
SELECT s.source_relid::int8, i.indexrelid IS NOT NULL
FROM pgtrickle.pgt_sources AS s
JOIN pg_catalog.pg_class AS b
  ON b.relnamespace = 'pgtrickle_changes'::pg_catalog.regnamespace AND b.relname = 'changes_' || s.source_relid
LEFT JOIN pg_catalog.pg_index AS i ON i.indrelid = b.oid
WHERE pg_catalog.pg_relation_size(b.oid) > %(long_bytes)s
  AND NOT coalesce(i.indisvalid, false)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.xact_start < pg_catalog.clock_timestamp() - interval '10 seconds')
ORDER BY 1
