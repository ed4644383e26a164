-- Adds keys to the stored plan of a stream table, or replaces them. %(id)s: the stream table; %(keys)s: a JSON object.
UPDATE pgtrickle.pgt_stream_tables AS st
SET plan = st.plan || %(keys)s::jsonb
WHERE st.pgt_id = %(id)s
