-- Privileges that the service role has and does not need, and privileges of others on what only it should read.
-- %(closed)s: functions that install closes, as text.
-- Returns: whether the operator has to act (otherwise it is information), the finding, and the remedy.
WITH RECURSIVE service AS (
    SELECT r.*, quote_ident(r.rolname) AS quoted FROM pg_roles AS r JOIN pg_namespace AS n ON n.nspowner = r.oid WHERE n.nspname = 'pgtrickle'
), roles (oid, way) AS (
    SELECT m.roleid, quote_ident(pg_get_userbyid(m.roleid)) FROM pg_auth_members AS m JOIN service AS s ON s.oid = m.member
    UNION
    SELECT m.roleid, r.way || ' -> ' || quote_ident(pg_get_userbyid(m.roleid)) FROM roles AS r JOIN pg_auth_members AS m ON m.member = r.oid
), member AS (
    SELECT DISTINCT ON (r.oid) r.oid, p.rolname, p.rolsuper, p.rolcreaterole, p.rolbypassrls, p.rolreplication, r.way
    FROM roles AS r JOIN pg_roles AS p ON p.oid = r.oid
    ORDER BY r.oid, length(r.way)
), ours AS (
    SELECT n.oid, n.nspname, n.nspowner, n.nspacl FROM pg_namespace AS n WHERE n.nspname IN ('pgtrickle', 'pgtrickle_changes', 'pgtrickle_run')
), sources AS (
    SELECT d.source_relid AS relid FROM pgtrickle.pgt_dependencies AS d UNION SELECT c.source_relid FROM pgtrickle.pgt_sources AS c
    UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN pgtrickle.pgt_dependencies AS d ON d.source_relid = i.inhparent
)
SELECT true, 'it is a superuser', 'run pgtrickle install as a superuser, which transfers ownership to a service role'
FROM service AS s WHERE s.rolsuper
UNION ALL
SELECT true, format('it has %%s', a.name), format('ALTER ROLE %%s NO%%s', s.quoted, a.name)
FROM service AS s
CROSS JOIN LATERAL (VALUES ('CREATEROLE', s.rolcreaterole), ('CREATEDB', s.rolcreatedb), ('REPLICATION', s.rolreplication),
    ('BYPASSRLS', s.rolbypassrls)) AS a(name, has)
WHERE a.has AND NOT s.rolsuper
UNION ALL
SELECT true, format('it is a member of superuser %%I (%%s)', m.rolname, m.way), format('REVOKE %%s FROM %%s', split_part(m.way, ' -> ', 1), s.quoted)
FROM member AS m, service AS s WHERE m.rolsuper AND NOT s.rolsuper
UNION ALL
-- SET ROLE is enough to use them
SELECT true, format('as a member of %%I (%%s) it can have %%s', m.rolname, m.way, a.name),
    format('ALTER ROLE %%I NO%%s, or REVOKE %%s FROM %%s', m.rolname, a.name, split_part(m.way, ' -> ', 1), s.quoted)
FROM member AS m
CROSS JOIN service AS s
CROSS JOIN LATERAL (VALUES ('CREATEROLE', m.rolcreaterole), ('REPLICATION', m.rolreplication), ('BYPASSRLS', m.rolbypassrls)) AS a(name, has)
WHERE a.has AND NOT m.rolsuper AND NOT s.rolsuper
UNION ALL
SELECT
    m.rolname <> ALL ('{pg_monitor,pg_read_all_stats,pg_read_all_settings,pg_stat_scan_tables,pg_use_reserved_connections,pg_checkpoint}'),
    format('it is a member of %%I (%%s)', m.rolname, m.way), format('REVOKE %%s FROM %%s', split_part(m.way, ' -> ', 1), s.quoted)
FROM member AS m, service AS s WHERE m.oid < 16384 AND NOT m.rolsuper
UNION ALL
SELECT DISTINCT true, format('it may grant role %%I to others', pg_get_userbyid(m.roleid)),
    format('REVOKE ADMIN OPTION FOR %%I FROM %%s', pg_get_userbyid(m.roleid), s.quoted)
FROM pg_auth_members AS m JOIN service AS s ON s.oid = m.member
WHERE m.admin_option AND pg_get_userbyid(m.roleid) <> 'pgtrickle_broker'
UNION ALL
SELECT false, format('it owns %%s %%s that pgtrickle does not use (%%s)', count(*), o.kind || CASE WHEN count(*) > 1 THEN 's' ELSE '' END,
                     string_agg(o.name, ', ' ORDER BY o.name) FILTER (WHERE o.position <= 3) || CASE WHEN count(*) > 3 THEN ', ...' ELSE '' END),
       'a service role of its own owns nothing else: pgtrickle install --service-role'
FROM (
    SELECT u.kind, u.name, row_number() OVER (PARTITION BY u.kind ORDER BY u.name) AS position
    FROM (
        SELECT CASE c.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' WHEN 'm' THEN 'materialized view' ELSE 'table' END AS kind,
               format('%%I.%%I', n.nspname, c.relname) AS name
        FROM pg_class AS c JOIN service AS s ON s.oid = c.relowner JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.oid >= 16384 AND c.relpersistence <> 't' AND n.oid NOT IN (SELECT o.oid FROM ours AS o)
          AND c.oid NOT IN (SELECT st.pgt_relid FROM pgtrickle.pgt_stream_tables AS st) AND c.oid NOT IN (SELECT x.relid FROM sources AS x)
          AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS st JOIN pg_inherits AS i ON i.inhparent = st.pgt_relid
                          WHERE st.partition_by IS NOT NULL AND i.inhrelid = c.oid)
          AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i') AND c.relkind = 'S')
        UNION ALL
        SELECT 'function', p.oid::regprocedure::text
        FROM pg_proc AS p JOIN service AS s ON s.oid = p.proowner
        WHERE p.oid >= 16384 AND p.pronamespace NOT IN (SELECT o.oid FROM ours AS o)
          AND p.oid NOT IN (SELECT unnest(st.functions_used) FROM pgtrickle.pgt_stream_tables AS st)
        UNION ALL
        SELECT 'schema', quote_ident(n.nspname)
        FROM pg_namespace AS n JOIN service AS s ON s.oid = n.nspowner
        WHERE n.oid >= 16384 AND n.nspname !~ '^pg_' AND n.oid NOT IN (SELECT o.oid FROM ours AS o)
        UNION ALL
        SELECT 'database', quote_ident(d.datname) FROM pg_database AS d JOIN service AS s ON s.oid = d.datdba
    ) AS u
) AS o
GROUP BY o.kind
UNION ALL
SELECT true, format('%%s %%s belongs to %%I, not to it', u.kind, u.name, u.owner), 'run pgtrickle install as a superuser'
FROM (
    SELECT 'relation' AS kind, format('%%I.%%I', o.nspname, c.relname) AS name, pg_get_userbyid(c.relowner) AS owner, c.relowner AS oid
    FROM pg_class AS c JOIN ours AS o ON o.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v')
    UNION ALL
    SELECT 'function', p.oid::regprocedure::text, pg_get_userbyid(p.proowner), p.proowner
    FROM pg_proc AS p JOIN ours AS o ON o.oid = p.pronamespace AND o.nspname <> 'pgtrickle_run'
    UNION ALL
    SELECT 'schema', o.nspname, pg_get_userbyid(o.nspowner), o.nspowner FROM ours AS o
    UNION ALL
    SELECT 'stream table', format('%%I.%%I', st.pgt_schema, st.pgt_name), pg_get_userbyid(c.relowner), c.relowner
    FROM pgtrickle.pgt_stream_tables AS st JOIN pg_class AS c ON c.oid = st.pgt_relid AND st.pgt_schema <> 'pgtrickle_changes'
) AS u, service AS s
WHERE u.oid <> s.oid
UNION ALL
SELECT DISTINCT true, format('%%s has %%s on schema %%I', g.name, a.privilege_type, o.nspname),
    format('REVOKE %%s ON SCHEMA %%I FROM %%s', a.privilege_type, o.nspname, g.name)
FROM ours AS o
CROSS JOIN LATERAL aclexplode(o.nspacl) AS a
CROSS JOIN LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name) AS g
WHERE a.grantee <> o.nspowner AND (a.privilege_type = 'CREATE' OR (o.nspname <> 'pgtrickle' AND g.name <> 'pgtrickle_broker'))
UNION ALL
SELECT DISTINCT true, format('%%s has %%s on %%s, which is private', g.name, a.privilege_type, t.name), format('REVOKE ALL ON %%s FROM %%s', t.name, g.name)
FROM (
    SELECT format('%%I.%%I', o.nspname, c.relname) AS name, c.relowner, x.acl
    FROM pg_class AS c
    JOIN ours AS o ON o.oid = c.relnamespace
    CROSS JOIN LATERAL (
        SELECT c.relacl UNION ALL SELECT a.attacl FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL
    ) AS x(acl)
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S')
      AND (o.nspname <> 'pgtrickle' OR c.relname IN ('pgt_readers', 'pgt_replicas', 'pgt_plans', 'pgt_subscribers', 'pgt_privileges'))
) AS t
CROSS JOIN LATERAL aclexplode(t.acl) AS a
CROSS JOIN LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name) AS g
WHERE a.grantee <> t.relowner
UNION ALL
-- as in sql/install/privileges.sql: columns whose text can quote rows
SELECT DISTINCT true, format('%%s has %%s on column %%s of %%s, which can quote rows', g.name, a.privilege_type, h.attname, h.relation::text),
       format('REVOKE ALL ON %%s FROM %%s, then pgtrickle install', h.relation, g.name)
FROM (
    SELECT c.oid::regclass AS relation, c.relowner, x.attname, c.relacl, x.attacl
    FROM (VALUES ('pgt_stream_tables', '{last_error_message,last_error_detail,reinit_reason,reinit_reason_params}'::name[]),
                 ('pgt_refresh_history', '{reason,reason_params,error_message,rows_inserted,rows_deleted,delta_row_count}'),
                 ('pgt_scheduler_jobs', '{detail}'), ('pgt_definitions', '{query,error_message}'), ('pgt_runtime', '{broker}')) AS k(relname, columns)
    JOIN pg_class AS c ON c.relname = k.relname AND c.relnamespace = 'pgtrickle'::regnamespace
    JOIN pg_attribute AS x ON x.attrelid = c.oid AND x.attname = ANY (k.columns)
) AS h
CROSS JOIN LATERAL (SELECT * FROM aclexplode(h.relacl) UNION ALL SELECT * FROM aclexplode(h.attacl)) AS a
CROSS JOIN LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name) AS g
WHERE a.grantee <> h.relowner AND a.privilege_type IN ('SELECT', 'UPDATE', 'INSERT')
UNION ALL
SELECT DISTINCT true, format('%%s may write to %%I.%%I', g.name, o.nspname, c.relname),
    format('REVOKE %%s ON %%I.%%I FROM %%s', a.privilege_type, o.nspname, c.relname, g.name)
FROM pg_class AS c
JOIN ours AS o ON o.oid = c.relnamespace AND o.nspname = 'pgtrickle'
CROSS JOIN LATERAL aclexplode(c.relacl) AS a
CROSS JOIN LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name) AS g
WHERE a.grantee <> c.relowner AND a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER') AND c.relkind IN ('r', 'p', 'v')
UNION ALL
SELECT DISTINCT true, format('%%s may create triggers on stream table %%s, which would run as it', g.name, c.oid::regclass),
    format('REVOKE TRIGGER ON %%s FROM %%s', c.oid::regclass, g.name)
FROM pgtrickle.pgt_stream_tables AS st
JOIN pg_class AS c ON c.oid = st.pgt_relid
CROSS JOIN LATERAL aclexplode(c.relacl) AS a
CROSS JOIN LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name) AS g
WHERE a.grantee <> c.relowner AND a.privilege_type = 'TRIGGER' AND st.pgt_schema <> 'pgtrickle_changes'
UNION ALL
SELECT false, format('trigger %%I of stream table %%s runs code of %%I as it', t.tgname, t.tgrelid::regclass, pg_get_userbyid(p.proowner)),
       format('ALTER FUNCTION %%s OWNER TO %%s, or SECURITY DEFINER', p.oid::regprocedure, s.quoted)
FROM service AS s, pgtrickle.pgt_stream_tables AS st
JOIN pg_trigger AS t ON t.tgrelid = st.pgt_relid AND NOT t.tgisinternal
JOIN pg_proc AS p ON p.oid = t.tgfoid
WHERE p.proowner <> s.oid AND NOT p.prosecdef
UNION ALL
SELECT DISTINCT true, format('%%s may call %%s, which is internal', g.name, p.oid::regprocedure),
    format('REVOKE ALL ON FUNCTION %%s FROM %%s', p.oid::regprocedure, g.name)
FROM pg_proc AS p
CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
CROSS JOIN LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name) AS g
WHERE a.grantee <> p.proowner
  AND (p.oid IN (SELECT to_regprocedure(f)::oid FROM unnest(%(closed)s::text[]) AS f) OR p.pronamespace = to_regnamespace('pgtrickle_changes'))
  AND NOT (p.proname = '_broker_counts' AND g.name = 'pgtrickle_broker')
  -- Called by a condition of a trigger, as the writer; and functions of triggers that whoever attaches a partition clones. PUBLIC cannot use the schema.
  AND NOT (g.name = 'PUBLIC' AND (p.proname = '_note_move'
           OR EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgfoid = p.oid AND t.tgname ~ '^pgtrickle_\d+_m')))
UNION ALL
SELECT false, 'PUBLIC has CREATE on schema public: whoever may connect can put functions and operators there', 'REVOKE CREATE ON SCHEMA public FROM PUBLIC'
FROM pg_namespace AS n CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
WHERE n.nspname = 'public' AND a.grantee = 0 AND a.privilege_type = 'CREATE'
ORDER BY 1 DESC, 2
