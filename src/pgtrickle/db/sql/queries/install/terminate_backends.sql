-- Ends the sessions of schedulers, workers with their loads, `pgtrickle refresh`, the broker and readers of other databases, as far as
-- they are of roles that we may act for. They check the version of the catalog when they connect again.
-- After '#', an application_name contains what the session does. Returns: bool for each.
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE datname = current_database()
  AND pid <> pg_backend_pid()
  AND split_part(application_name, '#', 1) IN (
      'pgtrickle/scheduler', 'pgtrickle/control', 'pgtrickle/reader', 'pgtrickle/writer', 'pgtrickle/author', 'pgtrickle/load', 'pgtrickle/stage',
      'pgtrickle/buffers', 'pgtrickle/broker', 'pgtrickle/look', 'pgtrickle/origin'
  )
  AND pg_has_role(usesysid, 'USAGE')
