-- Statements that operators have in their notes and dashboards; each runs as it stands. The line above each names its columns,
-- "..." where more may follow.

-- columns: active_workers, max_workers, per_db_cap, parallel_mode
SELECT * FROM pgtrickle.worker_pool_status();

-- columns: job_id, unit_key, unit_kind, status, member_count, attempt_no, scheduler_pid, worker_pid, enqueued_at, started_at, finished_at, duration_ms, ...
SELECT * FROM pgtrickle.parallel_job_status(300);

-- columns: total_stream_tables, active_count, error_count, suspended_count, stale_count, reinit_pending, max_staleness_seconds, scheduler_status, cache_hit_rate, ...
SELECT * FROM pgtrickle.health_summary();

-- columns: stream_table, source_table, source_oid, cdc_mode, pending_rows, buffer_bytes, row_count, ...
SELECT * FROM pgtrickle.change_buffer_sizes()
ORDER BY row_count DESC
LIMIT 20;

-- columns: active_workers, max_workers
SELECT active_workers, max_workers
FROM pgtrickle.worker_pool_status();

-- columns: saturated
SELECT active_workers >= max_workers AS saturated
FROM pgtrickle.worker_pool_status();

-- columns: pgt_schema, pgt_name, avg_sec, max_sec, refreshes
SELECT st.pgt_schema, st.pgt_name,
AVG(EXTRACT(EPOCH FROM (h.end_time - h.start_time))) AS avg_sec,
MAX(EXTRACT(EPOCH FROM (h.end_time - h.start_time))) AS max_sec,
COUNT(*) AS refreshes
FROM pgtrickle.pgt_refresh_history h
JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = h.pgt_id
WHERE h.start_time > now() - interval '1 hour'
AND h.status = 'COMPLETED'
GROUP BY st.pgt_schema, st.pgt_name
ORDER BY avg_sec DESC
LIMIT 20;

-- columns: ts, active, pool_size, queue_depth
SELECT now() AS ts,
(SELECT active_workers FROM pgtrickle.worker_pool_status()) AS active,
(SELECT max_workers FROM pgtrickle.worker_pool_status()) AS pool_size,
(SELECT COUNT(*) FROM pgtrickle.parallel_job_status(5)
WHERE status = 'QUEUED') AS queue_depth;

-- columns: db_name, workers_used, workers_quota, workers_queued, cluster_active, cluster_max, ...
SELECT * FROM pgtrickle.worker_allocation_status();

-- columns: kind, database, pid, state, since, memory, ...
SELECT * FROM pgtrickle.server_worker_inventory;

-- columns: source, database, pending_rows, max_lsn, last_updated_tick, consumers, scans_done, scans_saved, ...
SELECT * FROM pgtrickle.broker_status();

-- columns: clear_caches
SELECT pgtrickle.clear_caches();

-- columns: manual_refresh
SELECT pgtrickle.manual_refresh('s');

-- columns: refresh_stream_table
SELECT pgtrickle.refresh_stream_table('s');
