-- Whether this session has the rights of the role that installed pgtrickle. Returns: bool, or no row.
SELECT pg_catalog.pg_has_role(p.proowner, 'USAGE')
FROM pg_catalog.pg_proc AS p
WHERE p.oid = 'pgtrickle._register'::pg_catalog.regproc
