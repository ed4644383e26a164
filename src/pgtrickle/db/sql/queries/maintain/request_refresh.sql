-- Requests a refresh of a stream table, whatever its schedule. %(id)s: the stream table.
UPDATE pgtrickle.pgt_stream_tables AS st
SET refresh_requested_at = clock_timestamp()
WHERE st.pgt_id = %(id)s
