-- What roles, rights, code and relations there are: kind, name, all that matters of it. Attempts' own schemas are looked at one by one.
WITH rel AS (
    SELECT c.*, n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname !~ '^(evil_|pg_toast|pg_temp)' AND c.relkind <> 'i'
)
SELECT 'role', rolname::text, concat_ws(',', rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls, rolconfig)
FROM pg_roles
UNION ALL SELECT 'member', concat_ws(' of ', member::regrole, roleid::regrole), (to_jsonb(m) - '{oid,grantor,member,roleid}'::text[])::text FROM pg_auth_members AS m
UNION ALL SELECT 'relation', format('%s.%s', nspname, relname), concat_ws(',', relkind, relowner::regrole, relacl, relrowsecurity, relforcerowsecurity, reloptions)
FROM rel WHERE nspname <> 'pgtrickle_changes'
UNION ALL SELECT 'column', format('%s.%s.%s', r.nspname, r.relname, a.attname), concat_ws(',', a.attacl, a.atttypid::regtype)
FROM rel AS r JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 WHERE r.nspname <> 'pgtrickle_changes' AND r.oid >= 16384
UNION ALL SELECT 'function', format('%s.%s', n.nspname, p.oid::regprocedure), concat_ws(',', p.proowner::regrole, p.proacl, p.prosecdef, p.proconfig, md5(p.prosrc))
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname !~ '^evil_' AND n.nspname <> 'pgtrickle_changes'
UNION ALL SELECT 'schema', nspname::text, concat_ws(',', nspowner::regrole, nspacl) FROM pg_namespace WHERE nspname !~ '^(evil_|pg_temp|pg_toast)'
UNION ALL SELECT 'defaults', concat_ws('.', defaclrole::regrole, defaclnamespace), defaclacl::text FROM pg_default_acl
UNION ALL SELECT 'event trigger', evtname::text, evtfoid::regproc::text FROM pg_event_trigger
UNION ALL SELECT 'database', datname::text, concat_ws(',', datdba::regrole, datacl) FROM pg_database
UNION ALL SELECT 'settings', concat_ws('.', setdatabase, setrole::regrole), setconfig::text FROM pg_db_role_setting
UNION ALL SELECT 'publication', pubname::text, pubowner::regrole::text FROM pg_publication
UNION ALL SELECT 'server', srvname::text, concat_ws(',', srvowner::regrole, srvacl, srvoptions) FROM pg_foreign_server
UNION ALL SELECT 'mapping', concat_ws('.', srvname, usename), umoptions::text FROM pg_user_mappings
UNION ALL SELECT 'large object', oid::text, concat_ws(',', lomowner::regrole, lomacl) FROM pg_largeobject_metadata
UNION ALL SELECT 'trigger', format('%s.%s.%s', r.nspname, r.relname, t.tgname), concat_ws(',', t.tgfoid::regproc, t.tgenabled)
FROM pg_trigger AS t JOIN rel AS r ON r.oid = t.tgrelid WHERE NOT t.tgisinternal
UNION ALL SELECT 'policy', format('%s.%s', p.polrelid::regclass, p.polname), md5(p.polqual::text) FROM pg_policy AS p JOIN rel AS r ON r.oid = p.polrelid
UNION ALL SELECT 'rule', format('%s.%s', r.nspname, r.relname), md5(string_agg(w.ev_action::text, '' ORDER BY w.oid))
FROM pg_rewrite AS w JOIN rel AS r ON r.oid = w.ev_class WHERE r.nspname <> 'pg_catalog' GROUP BY 2
UNION ALL SELECT 'extension', extname::text, extowner::regrole::text FROM pg_extension
UNION ALL SELECT 'language', lanname::text, lanacl::text FROM pg_language
UNION ALL SELECT 'private', format('%s.%s', r.nspname, r.relname), concat_ws(',', r.relowner::regrole, r.relacl) FROM rel AS r WHERE r.nspname = 'pgtrickle_changes'
-- Everybody may execute those of triggers that partitions have clones of, but name none of them: the schema is closed.
UNION ALL SELECT CASE WHEN EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgfoid = p.oid AND t.tgname ~ '^pgtrickle_\d+_m') THEN 'private function for moves'
                      ELSE 'private function' END, format('%s.%s', n.nspname, p.oid::regprocedure), concat_ws(',', p.proowner::regrole, p.proacl)
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname = 'pgtrickle_changes'
