-- Closes units of a scheduler or pipeline that is gone. %(detail)s.
UPDATE pgtrickle.pgt_scheduler_jobs
SET status = CASE status WHEN 'RUNNING' THEN 'RETRYABLE_FAILED' ELSE 'CANCELLED' END, detail = %(detail)s, finished_at = clock_timestamp()
WHERE finished_at IS NULL
