-- The engine that a stream table names. %(id)s: the stream table. Returns: its name, or NULL for the one of the settings.
SELECT st.engine
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_id = %(id)s
