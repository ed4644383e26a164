-- The change buffers that one stream table reads: changes that it has not applied, and the size of each buffer. %(pgt_id)s. Counts rows.
SELECT b.source_relid::int8 AS relid, pgtrickle._table_name(b.source_relid) AS source, b.pending_rows, b.buffer_bytes, b.row_count
FROM pgtrickle._buffer_sizes() AS b
WHERE b.pgt_id = %(pgt_id)s
ORDER BY 2
