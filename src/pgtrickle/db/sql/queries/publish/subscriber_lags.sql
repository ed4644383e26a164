-- Subscribers of stream tables that are behind by more than %(bytes)s bytes.
-- Returns: kind (pull, slot), stream table (NULL for slots), name, bytes.
SELECT s.kind, s.stream_table, s.subscriber, s.lag_bytes
FROM pgtrickle.subscribers() AS s
WHERE s.lag_bytes > %(bytes)s
