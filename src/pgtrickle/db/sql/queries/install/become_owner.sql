-- Until the transaction ends, as the role that owns what is to be dropped, where that is not us: who inherits nothing of it has to become it. A superuser
-- stays what it is, as only superusers can end sessions of superusers. No parameters. Returns: the role, or no row.
SELECT set_config('role', r.rolname, true)
FROM pg_namespace AS n
JOIN pg_roles AS r ON r.oid = n.nspowner
JOIN pg_roles AS me ON me.rolname = current_user
WHERE n.nspname = 'pgtrickle'
  AND NOT me.rolsuper
  AND r.oid <> me.oid
  AND pg_has_role(me.oid, r.oid, CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
