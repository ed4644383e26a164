-- Ends the sessions of schedulers, workers, the broker and whoever looks from other databases in this one, as far as they are of roles that we may act for.
-- Returns: bool for each.
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE datname = current_database()
  AND pid <> pg_backend_pid()
  AND application_name IN ('pgtrickle/scheduler', 'pgtrickle/reader', 'pgtrickle/writer', 'pgtrickle/buffers', 'pgtrickle/broker', 'pgtrickle/look')
  AND pg_has_role(usesysid, 'USAGE')
