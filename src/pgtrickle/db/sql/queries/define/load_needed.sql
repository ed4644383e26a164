-- Whether the content of a stream table has to be loaded; locks its row. %(id)s: pgt_id; %(version)s: no row if its definition has another one.
SELECT st.needs_reinit OR NOT st.is_populated
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_id = %(id)s AND st.definition_version = %(version)s
FOR UPDATE
