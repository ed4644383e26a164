-- What roles may do that they should not. %(roles)s with %(schemas)s, their own; %(service)s.
SELECT who.role, x.problem
FROM unnest(%(roles)s::text[], %(schemas)s::text[]) AS who(role, schema_name)
JOIN pg_roles AS known ON known.rolname = who.role
CROSS JOIN LATERAL (
SELECT format('it may %%s %%s', p, c.oid::regclass)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) AS p
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f')
  AND (n.nspname = 'pgtrickle_changes' OR (n.nspname = 'reports' AND c.relname !~ '_\d+$')
       OR (n.nspname = 'app' AND c.relname IN ('secret', 'secret_view', 'secret_copy', 'broken', 'people'))
       OR (n.nspname IN ('pgtrickle', 'app') AND p <> 'SELECT'))
  AND (has_table_privilege(who.role, c.oid, p)
       OR (p IN ('INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege(who.role, c.oid, p)))
UNION ALL
SELECT format('it may SELECT columns of %%s', c.oid::regclass)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND has_any_column_privilege(who.role, c.oid, 'SELECT')
  AND (n.nspname = 'pgtrickle_changes' OR (n.nspname = 'reports' AND c.relname !~ '_\d+$') OR (n.nspname = 'app' AND c.relname IN ('secret', 'secret_view', 'secret_copy', 'broken')))
UNION ALL
SELECT 'it may read app.people.pay' WHERE has_column_privilege(who.role, 'app.people', 'pay', 'SELECT')
UNION ALL
SELECT format('it may execute %%s', p.oid::regprocedure)
FROM pg_proc AS p
WHERE (p.oid = 'app.secret_word()'::regprocedure OR p.pronamespace = 'pgtrickle_changes'::regnamespace)
  AND has_function_privilege(who.role, p.oid, 'EXECUTE')
  -- Conditions of triggers call it as the writer; partitions have clones of such triggers. The schema is closed (below), so nobody can name them.
  AND p.oid <> 'pgtrickle_changes._note_move(oid, text, text)'::regprocedure
  AND NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgfoid = p.oid AND t.tgname ~ '^pgtrickle_\d+_m')
UNION ALL
SELECT 'it may use schema pgtrickle_changes' WHERE has_schema_privilege(who.role, 'pgtrickle_changes', 'USAGE,CREATE')
UNION ALL
SELECT format('role %%s: %%s', r.rolname, w.what)
FROM pg_roles AS r
CROSS JOIN LATERAL (VALUES ('superuser', r.rolsuper), ('createrole', r.rolcreaterole), ('createdb', r.rolcreatedb), ('replication', r.rolreplication),
                           ('bypassrls', r.rolbypassrls)) AS w(what, is_so)
WHERE r.rolname = who.role AND w.is_so
UNION ALL
SELECT format('it is a member of %%s', m.roleid::regrole)
FROM pg_auth_members AS m
WHERE m.member = to_regrole(who.role) AND m.roleid::regrole::text !~ '_\d+$'
UNION ALL
SELECT format('role %%s was made', r.rolname) FROM pg_roles AS r WHERE starts_with(r.rolname, who.role || '_')
UNION ALL
SELECT format('it owns %%s of %%s, %%s', d.objid, d.classid::regclass, pg_describe_object(d.classid, d.objid, d.objsubid))
FROM pg_shdepend AS d
CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) AS i
WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = to_regrole(who.role) AND d.deptype = 'o'
  AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND coalesce(i.schema, i.identity) <> who.schema_name AND i.identity !~ ('^' || who.schema_name || '\M') AND coalesce(i.schema, '') !~ '^pg_temp'
  AND i.schema IS DISTINCT FROM 'pgtrickle_run' AND d.classid <> 'pg_user_mapping'::regclass
UNION ALL
SELECT format('in its schema %%s owns %%s', c.relowner::regrole, c.oid::regclass)
FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace(who.schema_name) AND c.relowner::regrole::text NOT IN (who.role) AND c.relkind <> 'i'
  AND NOT (c.relowner::regrole::text = %(service)s AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = '__pgt_row_id'))
UNION ALL
SELECT format('in its schema %%s owns function %%s', p.proowner::regrole, p.oid::regprocedure)
FROM pg_proc AS p
WHERE p.pronamespace = to_regnamespace(who.schema_name) AND p.proowner IS DISTINCT FROM to_regrole(who.role)
  AND p.prosrc !~ '^(multi)?range_constructor'  -- PostgreSQL's own, of each range type
UNION ALL
SELECT format('it has default privileges: %%s', d.defaclacl) FROM pg_default_acl AS d WHERE d.defaclacl::text ~ (who.role || '=')
) AS x(problem)
