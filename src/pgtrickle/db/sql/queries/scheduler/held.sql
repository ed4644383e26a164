-- Says of stream tables that wait for one that has failed why they wait, and takes it back from those that no longer do.
-- Arrays of equal length: %(ids)s, %(reasons)s.
WITH held AS (
    SELECT h.pgt_id, h.reason
    FROM unnest(%(ids)s::int8[], %(reasons)s::text[]) AS h (pgt_id, reason)
)
UPDATE pgtrickle.pgt_stream_tables AS st
SET last_error_message = h.reason
FROM pgtrickle.pgt_stream_tables AS t
LEFT JOIN held AS h ON h.pgt_id = t.pgt_id
WHERE st.pgt_id = t.pgt_id
  AND st.last_error_message IS DISTINCT FROM h.reason
  AND (h.pgt_id IS NOT NULL OR starts_with(st.last_error_message, 'waits for stream table '))
