-- Finished refreshes after one that is known. %(after)s: a refresh_id; %(most)s: number of rows.
SELECT h.refresh_id, h.pgt_id, h.action, h.status, h.engine, extract(epoch FROM h.end_time - h.start_time)::float8 AS seconds, h.rows_inserted AS inserted,
       h.rows_deleted AS deleted, h.delta_row_count AS changes, substring(h.error_message FROM '^PGT[0-9]{3}') AS error_code, h.timings
FROM pgtrickle.pgt_refresh_history AS h
WHERE h.refresh_id > %(after)s AND h.end_time IS NOT NULL
ORDER BY h.refresh_id
LIMIT %(most)s
