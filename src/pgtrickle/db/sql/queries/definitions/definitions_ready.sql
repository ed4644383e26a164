-- Whether definitions can be applied here.
-- Returns: pgtrickle is installed, in a version that knows about sets, and this role has USAGE on its schema.
SELECT n.oid IS NOT NULL,
       EXISTS (SELECT FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = n.oid AND p.proname = '_note_applied'),
       coalesce(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false)
FROM (SELECT pg_catalog.to_regnamespace('pgtrickle')::oid AS oid) AS n
