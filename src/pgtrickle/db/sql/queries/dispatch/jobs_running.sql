-- Units that a worker has begun. %(ids)s int8 array, %(worker_pid)s.
UPDATE pgtrickle.pgt_scheduler_jobs
SET status = 'RUNNING', worker_pid = %(worker_pid)s, started_at = clock_timestamp()
WHERE job_id = ANY (%(ids)s::int8[]) AND status = 'QUEUED'
