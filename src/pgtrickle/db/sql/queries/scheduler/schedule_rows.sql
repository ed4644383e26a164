-- Stream tables with everything that scheduling needs. %(ids)s: array of pgt_id, or NULL for all tables; %(by_clock)s: the codes of reasons for which a
-- result changes while no source changes.
-- Returns: pgt_id; storage table; captured sources (a mirror has -pgt_id, which stands for its table in the other database; a reader of a mirror without
-- rows has the source of that mirror); schedule; refresh mode; status; whether it is populated; whether it has to be loaded again; whether a refresh was
-- requested; time of the last refresh in seconds since the epoch; tier; whether the tier is pinned; diamond consistency and policy; whether its schedule
-- refreshes it even if no captured source has changed; name.
SELECT
    st.pgt_id,
    st.pgt_relid::int8,
    (
        SELECT coalesce(array_agg(d.source_relid::int8), '{}')
        FROM pgtrickle.pgt_dependencies AS d
        WHERE d.pgt_id = st.pgt_id AND d.source_type IN ('TABLE', 'STREAM_TABLE')
    ) || CASE WHEN m.is_stored THEN ARRAY[-m.pgt_id] ELSE '{}'::int8[] END
    || CASE WHEN (SELECT EXISTS (SELECT FROM pgtrickle.pgt_mirrors AS n WHERE NOT n.is_stored)) THEN ARRAY(
        SELECT -n.pgt_id
        FROM pgtrickle.pgt_dependencies AS d
        JOIN pgtrickle.pgt_stream_tables AS u ON u.pgt_relid = d.source_relid
        JOIN pgtrickle.pgt_mirrors AS n ON n.pgt_id = u.pgt_id
        WHERE d.pgt_id = st.pgt_id AND NOT n.is_stored
    ) ELSE '{}'::int8[] END,
    st.schedule,
    st.refresh_mode,
    st.status,
    -- A mirror without rows is never refreshed.
    st.is_populated OR NOT coalesce(m.is_stored, true),
    st.needs_reinit AND coalesce(m.is_stored, true),
    coalesce(m.is_stored, true) AND coalesce(st.refresh_requested_at > coalesce(st.refresh_done_at, '-infinity'), false),
    extract(epoch FROM coalesce(st.last_refresh_at, st.created_at))::float8,
    st.refresh_tier,
    st.tier_pinned,
    st.diamond_consistency,
    st.diamond_schedule_policy,
    m.pgt_id IS NULL AND EXISTS (
        SELECT
        FROM pgtrickle.pgt_dependencies AS d
        WHERE d.pgt_id = st.pgt_id AND d.source_type NOT IN ('TABLE', 'STREAM_TABLE', 'VIEW')
    ) OR (
        st.schedule <> 'calculated' AND st.effective_refresh_mode = 'FULL'
        AND st.mode_reason_code = ANY (%(by_clock)s::text[])
    ),
    format('%%I.%%I', st.pgt_schema, st.pgt_name)
FROM pgtrickle.pgt_stream_tables AS st
LEFT JOIN pgtrickle.pgt_mirrors AS m ON m.pgt_id = st.pgt_id
WHERE %(ids)s::int8[] IS NULL OR st.pgt_id = ANY (%(ids)s::int8[])
ORDER BY st.pgt_id
