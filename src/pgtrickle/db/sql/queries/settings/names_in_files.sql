-- Names of settings in postgresql.conf that begin with ours, also unknown ones. No parameters. Returns: name in lower case.
SELECT DISTINCT lower(f.name)
FROM pg_catalog.pg_file_settings AS f
WHERE starts_with(lower(f.name), 'pg_trickle.')
