-- Records that a worker begins another unit of its lease. %(running)s: that unit. int8 arrays: %(done)s: units that are refreshed and committed;
-- %(waiting)s: units that the worker has begun and will return to.
UPDATE pgtrickle.pgt_scheduler_jobs AS j
SET status = CASE WHEN j.job_id = %(running)s THEN 'RUNNING' WHEN j.job_id = ANY (%(done)s::int8[]) THEN 'SUCCEEDED' ELSE 'QUEUED' END,
    started_at = CASE
        WHEN j.job_id = %(running)s THEN coalesce(j.started_at, clock_timestamp())
        WHEN j.job_id = ANY (%(done)s::int8[]) THEN coalesce(j.started_at, j.taken_at)
    END,
    finished_at = CASE WHEN j.job_id = ANY (%(done)s::int8[]) THEN clock_timestamp() END
WHERE j.job_id = ANY (%(running)s::int8 || %(done)s::int8[] || %(waiting)s::int8[]) AND j.finished_at IS NULL
