-- Whether the catalog is in this database and ours: another role's installation has another control plane.
-- Returns: bool.
SELECT EXISTS (
    SELECT
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'pgtrickle' AND c.relname = 'pgt_stream_tables' AND pg_has_role(c.relowner, 'USAGE')
)
