-- The role that owns the catalog, and whether we have its rights. Returns: name, bool; no row where pgtrickle is not installed.
SELECT pg_catalog.pg_get_userbyid(c.relowner), pg_catalog.pg_has_role(c.relowner, 'USAGE')
FROM pg_catalog.pg_class AS c
WHERE c.oid = pg_catalog.to_regclass('pgtrickle.pgt_stream_tables')
