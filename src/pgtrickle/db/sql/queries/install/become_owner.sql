-- Becomes, for this transaction, the role that owns the objects to be dropped: a member that does not inherit its privileges needs SET ROLE. A superuser
-- does not change its role, as only superusers can end sessions of superusers. No parameters. Returns: the role, or no row if it stays the same.
SELECT set_config('role', r.rolname, true)
FROM pg_namespace AS n
JOIN pg_roles AS r ON r.oid = n.nspowner
JOIN pg_roles AS me ON me.rolname = current_user
WHERE n.nspname = 'pgtrickle'
  AND NOT me.rolsuper
  AND r.oid <> me.oid
  AND pg_has_role(me.oid, r.oid, CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
