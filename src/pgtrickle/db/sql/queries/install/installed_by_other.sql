-- The role that installed pgtrickle in this database, if this one is not a member of it and so cannot serve the database. No parameters.
-- Returns: its name, or no row.
SELECT pg_get_userbyid(c.relowner)::text
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'pgtrickle' AND c.relname = 'pgt_stream_tables' AND NOT pg_has_role(c.relowner, 'USAGE')
