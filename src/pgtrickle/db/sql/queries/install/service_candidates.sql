-- What the service role would need for stream tables over, and in, the schemas of users. %(role)s: its name; it exists.
-- Returns: statements for the DBA, one per row.
WITH service AS (
    SELECT r.oid, r.rolname FROM pg_catalog.pg_roles AS r WHERE r.rolname = %(role)s
), tables AS (
    SELECT c.oid, c.relnamespace, n.nspname, o.oid AS owner, o.rolname AS owner_name, o.rolsuper AS is_super
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner
    WHERE c.relkind IN ('r', 'p') AND c.oid >= 16384 AND c.relpersistence <> 't'
      AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'pgtrickle', 'pgtrickle_changes', 'pgtrickle_run')
)
SELECT format('GRANT %%I TO %%I;', t.owner_name, v.rolname)
FROM tables AS t, service AS v
WHERE NOT t.is_super AND t.owner <> v.oid AND NOT pg_catalog.pg_has_role(v.oid, t.owner, 'USAGE')
UNION
SELECT format('GRANT USAGE, CREATE ON SCHEMA %%I TO %%I;', t.nspname, v.rolname)
FROM tables AS t, service AS v
WHERE NOT (pg_catalog.has_schema_privilege(v.oid, t.relnamespace, 'USAGE') AND pg_catalog.has_schema_privilege(v.oid, t.relnamespace, 'CREATE'))
UNION
SELECT format(
    'ALTER TABLE %%s OWNER TO <team>; GRANT <team> TO %%I;  -- %%s owned by superuser %%I; <team>: a role that is no superuser',
    CASE count(*) WHEN 1 THEN min(t.oid::regclass::text) ELSE pg_catalog.quote_ident(t.nspname) || '.*' END, v.rolname,
    CASE count(*) WHEN 1 THEN 'it is' ELSE count(*) || ' tables are' END, t.owner_name
)
FROM tables AS t, service AS v
WHERE t.is_super
GROUP BY t.nspname, t.owner_name, v.rolname
ORDER BY 1
