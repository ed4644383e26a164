-- Whether definitions can be applied here.
-- Returns: pgtrickle is installed, and this role has USAGE on its schema.
SELECT n.oid IS NOT NULL,
       coalesce(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false)
FROM (SELECT pg_catalog.to_regnamespace('pgtrickle')::oid AS oid) AS n
