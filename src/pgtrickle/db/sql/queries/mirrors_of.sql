-- The mirrors of an origin that are to be kept. %(key)s: the origin. Returns: pgt_id.
SELECT m.pgt_id
FROM pgtrickle.pgt_mirrors AS m
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = m.pgt_id
WHERE m.origin_key = %(key)s AND st.status IN ('INITIALIZING', 'ACTIVE')
ORDER BY m.pgt_id
