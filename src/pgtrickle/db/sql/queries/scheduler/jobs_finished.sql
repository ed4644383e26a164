-- Closes units. Arrays of equal length: %(ids)s, %(statuses)s, %(details)s, %(times)s, %(rounds)s (of a cycle, or NULL).
UPDATE pgtrickle.pgt_scheduler_jobs AS j
SET status = f.status, detail = f.detail, iterations = f.rounds, finished_at = f.at,
    started_at = coalesce(j.started_at, CASE WHEN f.status <> 'CANCELLED' THEN coalesce(j.taken_at, f.at) END)
FROM unnest(%(ids)s::int8[], %(statuses)s::text[], %(details)s::text[], %(times)s::timestamptz[], %(rounds)s::int4[])
    AS f (id, status, detail, at, rounds)
WHERE j.job_id = f.id AND j.finished_at IS NULL
