-- The latest ids of the histories of refreshes and of units. No parameters.
SELECT coalesce((SELECT max(refresh_id) FROM pgtrickle.pgt_refresh_history), 0)::int8,
       coalesce((SELECT max(job_id) FROM pgtrickle.pgt_scheduler_jobs), 0)::int8
