-- The functions that are aggregates or return a set. The parser knows a function only by its name, and must not take one of these for a scalar function.
-- Returns: name, whether it returns a set (otherwise it is an aggregate).
SELECT DISTINCT p.proname::text, p.prokind <> 'a'
FROM pg_catalog.pg_proc AS p
WHERE p.prokind = 'a' OR p.proretset
