-- What `pgtrickle show` adds to the status of a stream table: its query, author, size and readers. %(name)s: along the search_path.
SELECT st.original_query AS query, st.created_by::text AS author, st.created_at, greatest(c.reltuples, 0)::int8 AS row_estimate,
       coalesce(pgtrickle._stored_size(c.oid), 0)::int8 AS bytes,
       ARRAY(SELECT pg_catalog.format('%%I.%%I', r.pgt_schema, r.pgt_name)
             FROM pgtrickle.pgt_dependencies AS d
             JOIN pgtrickle.pgt_stream_tables AS r ON r.pgt_id = d.pgt_id
             WHERE d.source_relid = st.pgt_relid AND d.pgt_id <> st.pgt_id
             ORDER BY 1) AS read_by
FROM pgtrickle.pgt_stream_tables AS st
LEFT JOIN pg_catalog.pg_class AS c ON c.oid = st.pgt_relid
WHERE st.pgt_id = pgtrickle._find(%(name)s)
