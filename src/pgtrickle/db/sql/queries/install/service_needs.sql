-- What the service role lacks for the stream tables that there are. %(role)s: its name; it exists.
-- Returns: statements for the DBA, one per row.
WITH service AS (
    SELECT r.oid, r.rolname FROM pg_catalog.pg_roles AS r WHERE r.rolname = %(role)s
), sources AS (
    SELECT c.oid, c.relkind, c.relnamespace, o.oid AS owner, o.rolname AS owner_name, o.rolsuper AS is_super
    FROM (SELECT d.source_relid FROM pgtrickle.pgt_dependencies AS d UNION SELECT s.source_relid FROM pgtrickle.pgt_sources AS s) AS u
    JOIN pg_catalog.pg_class AS c ON c.oid = u.source_relid
    JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner
    WHERE c.oid >= 16384 AND c.oid NOT IN (SELECT st.pgt_relid FROM pgtrickle.pgt_stream_tables AS st)
)
SELECT format('GRANT %%I TO %%I;', s.owner_name, v.rolname)
FROM sources AS s, service AS v
WHERE NOT s.is_super AND NOT pg_catalog.pg_has_role(v.oid, s.owner, 'USAGE')
UNION
-- A member of a superuser could do all that a superuser can.
SELECT format(
    'ALTER TABLE %%s OWNER TO <team>; GRANT <team> TO %%I;  -- <team>: a role that is no superuser, as %%I is', s.oid::regclass, v.rolname, s.owner_name
)
FROM sources AS s, service AS v
WHERE s.is_super AND s.relkind <> 'v'
UNION
SELECT format('GRANT USAGE ON SCHEMA %%I TO %%I;', n.nspname, v.rolname)
FROM sources AS s
JOIN pg_catalog.pg_namespace AS n ON n.oid = s.relnamespace, service AS v
WHERE NOT pg_catalog.has_schema_privilege(v.oid, n.oid, 'USAGE') AND (s.is_super OR NOT pg_catalog.has_schema_privilege(s.owner, n.oid, 'USAGE'))
UNION
SELECT format('GRANT USAGE, CREATE ON SCHEMA %%I TO %%I;', n.nspname, v.rolname)
FROM pgtrickle.pgt_stream_tables AS st
JOIN pg_catalog.pg_namespace AS n ON n.nspname = st.pgt_schema, service AS v
WHERE n.nspname <> 'pgtrickle_changes'
  AND NOT (pg_catalog.has_schema_privilege(v.oid, n.oid, 'USAGE') AND pg_catalog.has_schema_privilege(v.oid, n.oid, 'CREATE'))
ORDER BY 1
