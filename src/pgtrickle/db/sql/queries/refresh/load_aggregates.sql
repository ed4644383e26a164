-- Names of all aggregates: a load that calls one may need all rows at once. No parameters.
-- Returns: name.
SELECT DISTINCT p.proname::text
FROM pg_catalog.pg_proc AS p
WHERE p.prokind = 'a'
