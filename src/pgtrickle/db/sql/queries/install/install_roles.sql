-- The installing role, and the current owner of the objects. %(role)s: the given service role, or the default one.
-- Returns: current role, whether it is a superuser, whether it may create roles; owner of schema pgtrickle or NULL, whether that is a superuser;
-- whether the service role exists, whether it is a superuser, whether we may become it, whether it may create schemas in this database;
-- whether the owner of the schema has the privileges of the database's owner.
SELECT
    me.rolname,
    me.rolsuper,
    me.rolcreaterole,
    o.rolname,
    coalesce(o.rolsuper, false),
    s.oid IS NOT NULL,
    coalesce(s.rolsuper, false),
    coalesce(pg_catalog.pg_has_role(me.oid, s.oid, CASE WHEN pg_catalog.current_setting('server_version_num')::int >= 160000 THEN 'SET'
        ELSE 'MEMBER' END), false),
    coalesce(pg_catalog.has_database_privilege(s.oid, pg_catalog.current_database(), 'CREATE'), false),
    coalesce(pg_catalog.pg_has_role(o.oid, d.datdba, 'USAGE'), false)
FROM pg_catalog.pg_roles AS me
JOIN pg_catalog.pg_database AS d ON d.datname = pg_catalog.current_database()
LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = 'pgtrickle'
LEFT JOIN pg_catalog.pg_roles AS o ON o.oid = n.nspowner
LEFT JOIN pg_catalog.pg_roles AS s ON s.rolname = %(role)s
WHERE me.rolname = current_user
