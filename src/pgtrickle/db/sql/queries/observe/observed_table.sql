-- One stream table in full. %(schema)s, %(name)s.
SELECT st.pgt_id, st.original_query AS query, st.defining_query, st.plan, st.output_columns AS columns, st.reinit_reason, st.frontier,
       extract(epoch FROM st.created_at)::float8 AS created_at, st.created_by::text AS author, st.run_as, st.engine, st.tier_pinned,
       pgtrickle._full_when() AS full_when
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_schema = %(schema)s AND st.pgt_name = %(name)s
