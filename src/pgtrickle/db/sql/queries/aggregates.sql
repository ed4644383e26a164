-- The names of all aggregate and window functions of the database.
-- Returns: name.
SELECT DISTINCT proname::text
FROM pg_proc
WHERE prokind IN ('a', 'w')
