-- The tables of the catalog, in the order in which they are locked. Returns: quoted qualified names.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'pgtrickle' AND c.relkind IN ('r', 'p')
ORDER BY c.relname
