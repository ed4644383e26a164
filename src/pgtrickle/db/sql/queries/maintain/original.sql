-- The query as its author typed it. %(id)s: the stream table. Returns: text, oids of its functions that are not PostgreSQL's own.
SELECT st.original_query, st.functions_used::int8[]
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_id = %(id)s
