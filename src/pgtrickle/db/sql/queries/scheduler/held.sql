-- Records why stream tables wait for a failed one, and removes the message of those that no longer wait.
-- Arrays of equal length: %(ids)s, %(reasons)s (texts); %(code)s: the code of all of them.
WITH held AS (
    SELECT h.pgt_id, h.reason
    FROM unnest(%(ids)s::int8[], %(reasons)s::text[]) AS h (pgt_id, reason)
)
UPDATE pgtrickle.pgt_stream_tables AS st
SET last_error_code = CASE WHEN h.pgt_id IS NOT NULL THEN %(code)s END,
    last_error_message = h.reason
FROM pgtrickle.pgt_stream_tables AS t
LEFT JOIN held AS h ON h.pgt_id = t.pgt_id
WHERE st.pgt_id = t.pgt_id
  AND st.last_error_message IS DISTINCT FROM h.reason
  AND (h.pgt_id IS NOT NULL OR st.last_error_code = %(code)s)
