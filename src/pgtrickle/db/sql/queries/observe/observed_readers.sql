-- Who reads each change buffer, and how many of its changes each has not read: stream tables, mirrors in other databases, subscribers, replicas.
-- Counts rows of buffers. No parameters.
SELECT b.source_relid::int8 AS relid,
       CASE WHEN b.subscriber IS NOT NULL THEN 'subscriber' WHEN b.pgt_id IS NULL OR o.pgt_id IS NOT NULL THEN 'mirror' ELSE 'stream table' END AS kind,
       coalesce(b.subscriber, n.name, format('%I.%I', st.pgt_schema, st.pgt_name)) AS name, b.pending_rows
FROM pgtrickle._buffer_sizes() AS b
LEFT JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = b.pgt_id
LEFT JOIN pgtrickle.pgt_mirrors AS o ON o.pgt_id = b.pgt_id
LEFT JOIN pgtrickle._readers AS n ON n.reader_key = b.reader_key AND n.mirror_id = b.mirror_id
UNION ALL
SELECT r.source_oid::int8, 'replica', r.source_table, r.pending_rows
FROM pgtrickle.replicas() AS r
ORDER BY 1, 4 DESC NULLS FIRST, 2, 3
