-- Stream tables that people define, as the catalog has them.
-- Parameters: pgt_id, or NULL for all of them.
-- Returns: pgt_id, schema, name, both as people write them, query as PostgreSQL understood it and as it was typed, options that are not the default,
-- set, output columns,
-- effective mode, reason for it, whether it reads tables of other databases, whether it reads something that was renamed and is not followed yet.
SELECT st.pgt_id, st.pgt_schema, st.pgt_name, pg_catalog.format('%%I.%%I', st.pgt_schema, st.pgt_name), st.defining_query, st.original_query,
    pgtrickle._options_of(st.pgt_id), st.applied_from,
       st.output_columns, st.effective_refresh_mode, st.mode_reason, pgtrickle._reads_mirrors(st.pgt_id), pgtrickle._reads_otherwise(st.pgt_id)
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_schema <> 'pgtrickle_changes' AND st.pgt_id = coalesce(%s, st.pgt_id)
ORDER BY st.pgt_schema, st.pgt_name
