-- The stream tables of a database for `pgtrickle top`, with their activity of the last minute. No parameters. For every role with USAGE on the schema:
-- numbers of rows and errors are NULL for those who may not read the table.
WITH recent AS (
    SELECT h.pgt_id, pg_catalog.count(*) AS refreshes, pg_catalog.sum(n.rows_inserted + n.rows_deleted)::int8 AS written
    FROM pgtrickle.pgt_refresh_history AS h
    LEFT JOIN pgtrickle._refresh_numbers AS n ON n.refresh_id = h.refresh_id
    WHERE h.start_time > pg_catalog.clock_timestamp() - interval '1 minute' AND h.status = 'COMPLETED' AND h.action <> 'NO_DATA'
    GROUP BY h.pgt_id
)
SELECT s.pgt_id, s.name, CASE WHEN l.pgt_id IS NOT NULL THEN 'loading' ELSE s.status END AS status, s.effective_refresh_mode AS mode, s.last_engine AS engine,
       s.schedule, i.behind_seconds AS lag, coalesce(r.refreshes, 0)::int8 AS refreshes, r.written, d.ms, s.last_error_message AS error,
       l.rows_done, l.rows_estimated
FROM pgtrickle.pgt_status() AS s
LEFT JOIN pgtrickle.stream_tables_info AS i ON i.pgt_id = s.pgt_id
LEFT JOIN pgtrickle.load_progress() AS l ON l.pgt_id = s.pgt_id
LEFT JOIN recent AS r ON r.pgt_id = s.pgt_id
LEFT JOIN LATERAL (
    SELECT (extract(epoch FROM h.end_time - h.start_time) * 1000)::float8 AS ms
    FROM pgtrickle.pgt_refresh_history AS h
    WHERE h.pgt_id = s.pgt_id AND h.status = 'COMPLETED' AND h.action <> 'NO_DATA'
    ORDER BY h.refresh_id DESC
    LIMIT 1
) AS d ON true
