-- What pgtrickle.set_option() has stored in this database, to be added to settings.sql.
-- Returns: rank 1, name with its prefix, value.
SELECT 1, 'pg_trickle.' || name, value
FROM pgtrickle.pgt_settings
