-- The health checks that concern more than one stream table. No parameters.
SELECT h.check_name AS name, h.severity, h.detail
FROM pgtrickle.health_check() AS h
WHERE h.check_name NOT IN ('error_tables', 'suspended_tables', 'stale_tables', 'needs_reinit', 'consecutive_errors')
