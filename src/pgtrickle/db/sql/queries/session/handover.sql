-- What a session of another process needs to have the settings, and the snapshot, of this one. %(snapshot)s: whether to export the snapshot; then run in a
-- REPEATABLE READ transaction, outside savepoints.
-- Returns: start of the server, an exported snapshot or NULL, json {name: value} of the settings that this session has not from its defaults.
SELECT
    EXTRACT(EPOCH FROM pg_catalog.pg_postmaster_start_time())::text,
    CASE WHEN %(snapshot)s THEN pg_catalog.pg_export_snapshot() END,
    (
        SELECT pg_catalog.json_object_agg(s.name, s.setting)
        FROM pg_catalog.pg_settings AS s
        WHERE s.source IN ('client', 'session')
          AND s.context IN ('user', 'superuser')
          AND s.name NOT IN ('application_name', 'transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
    )
