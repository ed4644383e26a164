-- Whether this database has options that we may read. An installation of an earlier version has none yet.
-- Returns: bool.
SELECT EXISTS (
    SELECT
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'pgtrickle' AND c.relname = 'pgt_settings'
      AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
)
