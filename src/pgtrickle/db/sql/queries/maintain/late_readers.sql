-- Readers in other databases that hold change buffers back. No parameters.
-- Returns: reader (NULL to who may not see it), source, when it last said something, changes kept for it, bytes of the buffer (for people).
SELECT e.reader, e.source_table, e.last_seen, e.pending_rows, pg_catalog.pg_size_pretty(e.buffer_bytes)
FROM pgtrickle.readers() AS e
WHERE e.late
ORDER BY 1, 2
