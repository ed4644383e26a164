-- Units of work: those that are queued or running, and the latest finished ones. %(most)s: number of finished ones.
SELECT j.job_id, j.unit_kind AS kind, j.status, j.tier, j.attempt_no AS attempt, extract(epoch FROM j.enqueued_at)::float8 AS queued_at,
       extract(epoch FROM j.started_at)::float8 AS started_at, extract(epoch FROM j.finished_at)::float8 AS finished_at, j.members, j.detail
FROM (
    (SELECT * FROM pgtrickle.pgt_scheduler_jobs WHERE finished_at IS NULL)
    UNION ALL
    (SELECT * FROM pgtrickle.pgt_scheduler_jobs WHERE finished_at IS NOT NULL ORDER BY job_id DESC LIMIT %(most)s)
) AS j
ORDER BY j.job_id DESC
