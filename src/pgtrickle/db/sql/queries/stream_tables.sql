-- Stream tables as refreshing needs them.
-- %(ids)s: array of pgt_id, or NULL for all.
-- Returns a row for each: the columns of model.catalog.StreamTable, sources as an array of relation oids.
SELECT
    st.pgt_id,
    st.pgt_relid::int8,
    st.pgt_schema,
    st.pgt_name,
    st.defining_query,
    st.output_columns,
    st.refresh_mode,
    st.effective_refresh_mode,
    st.mode_reason,
    st.schedule,
    st.status,
    st.is_populated,
    st.frontier,
    st.epoch,
    st.needs_reinit,
    st.reinit_reason,
    st.definition_version,
    st.plan,
    st.refresh_requested_at,
    st.refresh_done_at,
    st.last_refresh_at,
    st.consecutive_errors,
    (
        SELECT coalesce(json_agg(json_build_object(
            'relid', d.source_relid::int8,
            'type', d.source_type,
            'columns', d.columns_used,
            'fingerprint', d.fingerprint
        )), '[]')
        FROM pgtrickle.pgt_dependencies AS d
        WHERE d.pgt_id = st.pgt_id
    ),
    st.last_full_ms,
    EXISTS (
        SELECT
        FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid = st.pgt_relid AND n.nspname = st.pgt_schema AND c.relname = st.pgt_name
    ),
    (
        SELECT md5(string_agg(p.oid || ':' || p.xmin, ',' ORDER BY p.oid))
        FROM pg_proc AS p
        WHERE p.oid = ANY (st.functions_used)
    ),
    st.created_at
FROM pgtrickle.pgt_stream_tables AS st
WHERE %(ids)s::int8[] IS NULL OR st.pgt_id = ANY (%(ids)s::int8[])
ORDER BY st.pgt_id
