-- A role that `install` may have created. %(role)s, %(mark)s: the comment that such a role has.
-- Returns: whether it has the comment; whether it owns something in this database or of the whole server; its name, quoted.
SELECT
    coalesce(shobj_description(r.oid, 'pg_authid') = %(mark)s, false),
    EXISTS (
        SELECT
        FROM pg_shdepend AS d
        WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = r.oid AND d.deptype = 'o'
          AND d.dbid IN (0, (SELECT b.oid FROM pg_database AS b WHERE b.datname = current_database()))
    ),
    quote_ident(r.rolname)
FROM pg_roles AS r
WHERE r.rolname = %(role)s
