-- Finished units after one that is known. %(after)s: a job_id; %(most)s: number of rows.
SELECT j.job_id, j.unit_kind AS kind, j.status, cardinality(j.members) AS members, extract(epoch FROM j.started_at - j.enqueued_at)::float8 AS waited
FROM pgtrickle.pgt_scheduler_jobs AS j
WHERE j.job_id > %(after)s AND j.finished_at IS NOT NULL
ORDER BY j.job_id
LIMIT %(most)s
