-- Functions that are not plain scalar ones. The parser asks by name alone, so that none of them is taken for one.
-- Returns name, whether it returns a set (else it is an aggregate).
SELECT DISTINCT p.proname::text, p.prokind <> 'a'
FROM pg_catalog.pg_proc AS p
WHERE p.prokind = 'a' OR p.proretset
