-- Whether we may become the broker's role, and whether that may call what it needs here. No parameters. Returns: bool.
SELECT coalesce(bool_and(
    CASE WHEN current_setting('server_version_num')::int >= 160000 THEN pg_has_role(current_user, r.oid, 'SET')
        ELSE pg_has_role(current_user, r.oid, 'MEMBER') END
    AND has_schema_privilege(r.oid, 'pgtrickle_changes', 'USAGE')
    AND has_function_privilege(r.oid, 'pgtrickle_changes._broker_counts(oid[], pg_snapshot[])', 'EXECUTE')
), false)
FROM pg_roles AS r
WHERE r.rolname = 'pgtrickle_broker'
