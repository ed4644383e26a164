-- The connections of the server. No parameters.
-- Returns: max_connections; how many are reserved by configuration; how many other programs use now.
SELECT current_setting('max_connections')::int,
       current_setting('superuser_reserved_connections')::int + coalesce(current_setting('reserved_connections', true), '0')::int,
       greatest(0, (SELECT sum(numbackends)::int FROM pg_stat_database)
                   - (SELECT count(*)::int FROM pg_stat_activity WHERE starts_with(application_name, 'pgtrickle/')))
