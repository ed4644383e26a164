-- A role. %(name)s. Returns, if there is one: its quoted name, and whether it can log in.
SELECT pg_catalog.quote_ident(r.rolname), r.rolcanlogin
FROM pg_catalog.pg_roles AS r
WHERE r.rolname = %(name)s
