-- Closes units. Arrays of equal length: %(ids)s, %(statuses)s, %(details)s, %(times)s.
UPDATE pgtrickle.pgt_scheduler_jobs AS j
SET status = f.status, detail = f.detail, finished_at = f.at, started_at = coalesce(j.started_at, CASE WHEN f.status <> 'CANCELLED' THEN f.at END)
FROM unnest(%(ids)s::int8[], %(statuses)s::text[], %(details)s::text[], %(times)s::timestamptz[]) AS f (id, status, detail, at)
WHERE j.job_id = f.id AND j.finished_at IS NULL
