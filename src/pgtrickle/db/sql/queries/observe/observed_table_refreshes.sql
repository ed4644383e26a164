-- The latest refreshes of one stream table, newest first. %(pgt_id)s, %(most)s. Messages are included: the caller decides who sees them.
SELECT h.refresh_id, extract(epoch FROM h.data_timestamp)::float8 AS data_at, extract(epoch FROM h.start_time)::float8 AS started_at,
       extract(epoch FROM h.end_time)::float8 AS ended_at, h.action, h.status, h.initiated_by, h.engine, h.rows_inserted AS inserted, h.rows_deleted AS deleted,
       h.delta_row_count AS changes, h.reason_code, h.reason, h.engine_reason_code, pgtrickle._reason_text(h.engine_reason_code, h.engine_reason_params)
           AS engine_reason, substring(h.error_message FROM '^PGT[0-9]{3}') AS error_code, h.error_message AS error, h.timings, h.source_ms,
       h.operator_rows
FROM pgtrickle.pgt_refresh_history AS h
WHERE h.pgt_id = %(pgt_id)s
ORDER BY h.refresh_id DESC
LIMIT %(most)s
