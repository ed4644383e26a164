-- Our settings in PostgreSQL: the values that a new session would have.
-- Parameters: names (text[], with their prefix: pg_settings does not show parameters that no library has defined, so they are asked for one
-- by one). Returns: rank, name in lower case, value. The highest rank of a name wins, as when a session begins.
-- -1, 0: two times in seconds: when the server's files were last read (0), and the later one of that and the start of this session (-1).
-- 2: the value of this session, which is that of postgresql.conf if no higher rank was ever set.
-- 3 to 6: what ALTER ROLE ALL, ALTER DATABASE, ALTER ROLE and ALTER ROLE ... IN DATABASE have stored.
SELECT 0, '', pg_conf_load_time()::text
UNION ALL
SELECT -1, '', EXTRACT(EPOCH FROM greatest(pg_conf_load_time(), a.backend_start))::text
FROM pg_stat_get_activity(pg_backend_pid()) AS a
UNION ALL
SELECT 2, lower(name), current_setting(name, true)
FROM unnest(%(names)s::text[]) AS name
WHERE current_setting(name, true) IS NOT NULL
UNION ALL
SELECT 3 + (s.setdatabase <> 0)::int + 2 * (s.setrole <> 0)::int, lower(split_part(entry, '=', 1)), substr(entry, strpos(entry, '=') + 1)
FROM pg_db_role_setting AS s
CROSS JOIN LATERAL unnest(s.setconfig) AS entry
WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
  AND s.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
  AND starts_with(lower(entry), 'pg_trickle.')
