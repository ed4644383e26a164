-- Stream tables that read a relation. %(relid)s. Returns: pgt_id, query; their rows are locked.
SELECT st.pgt_id, st.defining_query
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_id IN (SELECT d.pgt_id FROM pgtrickle.pgt_dependencies AS d WHERE d.source_relid = %(relid)s::int8::oid)
ORDER BY st.pgt_id
FOR UPDATE
