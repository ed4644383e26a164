-- Requests a refresh of every stream table that is not suspended. No parameters.
SELECT pgtrickle.refresh_stream_table(pg_catalog.format('%I.%I', st.pgt_schema, st.pgt_name))
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.status <> 'SUSPENDED'
