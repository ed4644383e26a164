-- Whether the role of this session can install pgtrickle here. No parameters. Returns one row: role and database, quoted; whether it is a superuser; may
-- create schemas; is a standby; the role that owns an installation, or NULL; whether this role may act as that one.
SELECT pg_catalog.quote_ident(current_user), pg_catalog.quote_ident(pg_catalog.current_database()), r.rolsuper,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'), pg_catalog.pg_is_in_recovery(),
       pg_catalog.pg_get_userbyid(n.nspowner)::text, coalesce(pg_catalog.pg_has_role(n.nspowner, 'MEMBER'), true)
FROM pg_catalog.pg_roles AS r
LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = 'pgtrickle'
WHERE r.rolname = current_user
