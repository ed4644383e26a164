-- Whether the session was opened by a superuser. No parameters.
-- Returns: its name and that of the role that it could be opened by instead; no row when it is no superuser.
SELECT s.rolname, quote_ident(coalesce(
    (SELECT o.rolname FROM pg_namespace AS n JOIN pg_roles AS o ON o.oid = n.nspowner WHERE n.nspname = 'pgtrickle' AND NOT o.rolsuper),
    'pgtrickle_service'
))
FROM pg_roles AS s
WHERE s.rolname = session_user AND s.rolsuper
