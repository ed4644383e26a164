-- Readers in other databases whose positions prevent that change buffers are trimmed. No parameters.
-- Returns: reader (NULL if the caller may not see it); source; the time of its last report; number of changes kept for it; size of the buffer as text.
SELECT e.reader, e.source_table, e.last_seen, e.pending_rows, pg_catalog.pg_size_pretty(e.buffer_bytes)
FROM pgtrickle.readers() AS e
WHERE e.late
ORDER BY 1, 2
