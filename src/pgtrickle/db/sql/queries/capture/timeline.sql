-- Identifies the history of this server, which changes with a promotion or a restore. No parameters. Returns: text; empty on a standby.
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) END
