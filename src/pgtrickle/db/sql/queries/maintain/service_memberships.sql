-- Roles that were granted to the service role, and whether something in this database needs that. No parameters.
-- Returns: name of the service role, name of the role, whether it or a role of it owns what a stream table reads or calls, or is an author.
WITH service AS (
    SELECT r.oid, r.rolname FROM pg_roles AS r JOIN pg_namespace AS n ON n.nspowner = r.oid WHERE n.nspname = 'pgtrickle' AND NOT r.rolsuper
), needed AS (
    SELECT c.relowner AS oid
    FROM (SELECT d.source_relid FROM pgtrickle.pgt_dependencies AS d UNION SELECT s.source_relid FROM pgtrickle.pgt_sources AS s) AS u
    JOIN pg_class AS c ON c.oid = u.source_relid
    UNION
    SELECT p.proowner FROM pgtrickle.pgt_stream_tables AS st CROSS JOIN unnest(st.functions_used) AS f JOIN pg_proc AS p ON p.oid = f
    UNION
    SELECT r.oid FROM pgtrickle.pgt_stream_tables AS st JOIN pg_roles AS r ON r.rolname = pgtrickle._author(st.created_by, st.created_key)
    UNION
    SELECT r.oid FROM pgtrickle.pgt_definitions AS d JOIN pg_roles AS r ON r.rolname = pgtrickle._author(d.created_by, d.created_key)
)
SELECT s.rolname, g.rolname, EXISTS (SELECT FROM needed AS n WHERE n.oid <> s.oid AND pg_has_role(g.oid, n.oid, 'MEMBER'))
FROM service AS s
JOIN (SELECT DISTINCT m.member, m.roleid FROM pg_auth_members AS m) AS m ON m.member = s.oid
JOIN pg_roles AS g ON g.oid = m.roleid
WHERE g.oid >= 16384 AND NOT g.rolsuper AND g.rolname <> 'pgtrickle_broker'
ORDER BY 2
