-- How many connections the server allows, keeps for others by configuration, and has in use now by others than us.
-- Returns: max_connections, reserved, in use by others.
SELECT current_setting('max_connections')::int,
       current_setting('superuser_reserved_connections')::int + coalesce(current_setting('reserved_connections', true), '0')::int,
       greatest(0, (SELECT sum(numbackends)::int FROM pg_stat_database)
                   - (SELECT count(*)::int FROM pg_stat_activity WHERE starts_with(application_name, 'pgtrickle/')))
