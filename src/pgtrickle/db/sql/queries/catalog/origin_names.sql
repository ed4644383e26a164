-- Mirrors among relations. %(relids)s. Returns: the name here, the table of another database.
SELECT n.nspname || '.' || c.relname, pgtrickle._origin_of(c.oid)
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%(relids)s::int8[]::oid[]) AND pgtrickle._origin_of(c.oid) IS NOT NULL
