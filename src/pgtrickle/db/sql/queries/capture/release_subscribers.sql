-- Ends the announcement of fence_subscribers: the buffer has been compacted. %(relid)s: the source. Returns nothing.
UPDATE pgtrickle.pgt_subscribers AS u
SET netted = NULL
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_id = u.pgt_id AND st.pgt_relid = %(relid)s AND u.netted IS NOT NULL
