-- The stream tables of a database and mirrors of tables of other databases, each with its last refresh and its activity of the last minute.
-- No parameters. Messages are included: the caller decides who sees them. Sizes are estimates of the server's statistics.
WITH recent AS (
    SELECT h.pgt_id, count(*) AS refreshes, sum(h.delta_row_count) AS changes, sum(coalesce(h.rows_inserted, 0) + coalesce(h.rows_deleted, 0)) AS written
    FROM pgtrickle.pgt_refresh_history AS h
    WHERE h.start_time > clock_timestamp() - interval '1 minute' AND h.status = 'COMPLETED'
    GROUP BY h.pgt_id
)
SELECT st.pgt_id, st.pgt_relid::int8 AS relid, st.pgt_schema::text AS schema, st.pgt_name::text AS name, st.status, st.refresh_mode,
       st.effective_refresh_mode AS mode, st.mode_reason_code, st.mode_reason, st.schedule, st.refresh_tier AS tier, st.engine, st.is_populated,
       st.needs_reinit,
       extract(epoch FROM st.data_timestamp)::float8 AS data_at, extract(epoch FROM st.last_refresh_at)::float8 AS refreshed_at,
       b.pending, b.stale, b.behind_seconds AS lag, st.consecutive_errors, st.last_error_code AS error_code, m.last_error_message AS error,
       st.created_by::text AS author, o.origin_database::text AS origin_database, o.origin_server, o.origin_schema::text AS origin_schema,
       o.origin_table::text AS origin_table, o.origin_key, o.origin_relid::int8 AS origin_relid, greatest(c.reltuples, 0)::float8 AS row_estimate,
       coalesce(pgtrickle._stored_size(c.oid), 0)::int8 AS bytes, l.action AS last_action, l.engine AS last_engine, l.ms AS last_ms,
       coalesce(r.refreshes, 0)::int8 AS refreshes_minute, coalesce(r.changes, 0)::int8 AS changes_minute, coalesce(r.written, 0)::int8 AS written_minute
FROM pgtrickle.pgt_stream_tables AS st
LEFT JOIN pgtrickle._behind() AS b ON b.pgt_id = st.pgt_id
LEFT JOIN pgtrickle.pgt_mirrors AS o ON o.pgt_id = st.pgt_id
LEFT JOIN pgtrickle._messages AS m ON m.pgt_id = st.pgt_id
LEFT JOIN pg_class AS c ON c.oid = st.pgt_relid
LEFT JOIN recent AS r ON r.pgt_id = st.pgt_id
LEFT JOIN LATERAL (
    SELECT h.action, h.engine, (extract(epoch FROM h.end_time - h.start_time) * 1000)::float8 AS ms
    FROM pgtrickle.pgt_refresh_history AS h
    WHERE h.pgt_id = st.pgt_id AND h.status = 'COMPLETED' AND h.action <> 'NO_DATA'
    ORDER BY h.refresh_id DESC
    LIMIT 1
) AS l ON true
ORDER BY st.pgt_schema, st.pgt_name
