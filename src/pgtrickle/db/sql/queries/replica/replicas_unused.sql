-- Replicas that no user requested and no stream table reads, here or in another database; or whose table was dropped. No parameters. Returns: source.
SELECT p.source_relid::int8
FROM pgtrickle.pgt_replicas AS p
WHERE p.origin = pgtrickle._origin()
  AND (NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = p.source_relid)
       OR NOT p.is_requested AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = ANY (p.readers))
       AND NOT EXISTS (SELECT FROM pgtrickle.pgt_readers AS e WHERE e.source_relid = p.source_relid AND e.reads_replica))
