-- Whether this database has leases that we may read, and that we may take. Returns: bool, bool.
SELECT bool_or(has_table_privilege(c.oid, 'SELECT')), bool_or(has_table_privilege(c.oid, 'INSERT'))
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'pgtrickle' AND c.relname = 'pgt_leases' AND has_schema_privilege(n.oid, 'USAGE')
