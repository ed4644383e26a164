-- Whether the database has a scheduler, and its overall state. No parameters.
SELECT r.running, r.ticking, r.enabled, pg_is_in_recovery() AS in_recovery, pgtrickle._origin() AS key, pgtrickle.version() AS version
FROM pgtrickle._runtime() AS r
