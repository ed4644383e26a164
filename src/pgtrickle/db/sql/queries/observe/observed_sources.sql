-- Captured tables and their change buffers, from statistics and file sizes: no buffer is read. No parameters.
-- captured: changes ever written to the buffer, as the cumulative statistics of the server have counted them.
SELECT s.source_relid::int8 AS relid, coalesce(n.nspname, '?')::text AS schema, coalesce(c.relname, s.source_relid::text)::text AS name,
       coalesce(pg_stat_get_tuples_inserted(b.oid), 0)::int8 AS captured, coalesce(pg_total_relation_size(b.oid), 0)::int8 AS buffer_bytes,
       (SELECT count(*) FROM pgtrickle.pgt_dependencies AS d WHERE d.source_relid = s.source_relid)::int8 AS readers,
       (SELECT count(*) FROM pgtrickle.pgt_readers AS e WHERE e.source_relid = s.source_relid)::int8 AS remote_readers
FROM pgtrickle.pgt_sources AS s
LEFT JOIN pg_class AS c ON c.oid = s.source_relid
LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_class AS b ON b.relnamespace = 'pgtrickle_changes'::regnamespace AND b.relname = 'changes_' || s.source_relid
ORDER BY 2, 3
