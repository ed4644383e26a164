-- The latest refresh of a stream table, for `pgtrickle refresh`. %(name)s: along the search_path. Returns one row, or none if it does not exist.
SELECT pg_catalog.format('%%I.%%I', st.pgt_schema, st.pgt_name), h.action, h.rows_inserted, h.rows_deleted, pg_catalog.round(h.duration_ms)::int8, h.reason
FROM pgtrickle.pgt_stream_tables AS st
LEFT JOIN LATERAL pgtrickle.get_refresh_history(%(name)s, 1) AS h ON true
WHERE st.pgt_id = pgtrickle._find(%(name)s)
