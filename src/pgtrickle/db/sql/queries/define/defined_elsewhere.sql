-- Whether a stream table was defined in another database or server than this one. %(id)s: the stream table. Returns: one boolean.
SELECT st.defined_in IS DISTINCT FROM pgtrickle._place()
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_id = %(id)s
