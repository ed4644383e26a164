-- A table by its name along the search_path. %(name)s. Returns, if there is one: its oid, and its name with schema.
SELECT c.oid::int8, pg_catalog.format('%%I.%%I', n.nspname, c.relname)
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass(%(name)s) AND c.relkind IN ('r', 'p')
