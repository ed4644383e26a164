-- Records which units a worker has taken. %(ids)s: int8 array; %(first)s: the unit that the worker begins with; %(worker_pid)s.
UPDATE pgtrickle.pgt_scheduler_jobs
SET worker_pid = %(worker_pid)s,
    taken_at = statement_timestamp(),
    status = CASE WHEN job_id = %(first)s THEN 'RUNNING' ELSE 'QUEUED' END,
    started_at = CASE WHEN job_id = %(first)s THEN statement_timestamp() END
WHERE job_id = ANY (%(ids)s::int8[]) AND status = 'QUEUED'
