-- Closes units of a scheduler or pipeline that has ended; those that a worker had taken are tried again. %(detail)s.
UPDATE pgtrickle.pgt_scheduler_jobs
SET status = CASE WHEN status = 'RUNNING' OR worker_pid IS NOT NULL THEN 'RETRYABLE_FAILED' ELSE 'CANCELLED' END,
    detail = %(detail)s, finished_at = clock_timestamp()
WHERE finished_at IS NULL
