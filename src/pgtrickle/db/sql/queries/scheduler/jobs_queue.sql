-- Records units that are handed to the pipeline. The parameters are arrays of equal length: %(keys)s, %(kinds)s, %(members)s (each the text of an array),
-- %(tiers)s, %(attempts)s. %(scheduler_pid)s may be NULL; %(tick_seconds)s: the time since the tick began.
-- Returns: job_id, in the order of the arrays.
INSERT INTO pgtrickle.pgt_scheduler_jobs (unit_key, unit_kind, members, tier, attempt_no, scheduler_pid, tick_at)
SELECT u.key, u.kind, u.members::int8[], u.tier, u.attempt, %(scheduler_pid)s::int4,
       pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => %(tick_seconds)s::float8)
FROM unnest(%(keys)s::text[], %(kinds)s::text[], %(members)s::text[], %(tiers)s::text[], %(attempts)s::int4[])
    WITH ORDINALITY AS u (key, kind, members, tier, attempt, position)
ORDER BY u.position
RETURNING job_id
