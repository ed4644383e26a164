-- The role that owns the objects of pgtrickle in this database. No parameters. Returns: its name, if pgtrickle is installed.
SELECT pg_catalog.pg_get_userbyid(n.nspowner)::text
FROM pg_catalog.pg_namespace AS n
WHERE n.nspname = 'pgtrickle'
