-- The staging tables of loads that Spark's executors have created. No parameters.
-- Returns: pgt_id of the stream table, name of the staging table.
SELECT pg_catalog.split_part(c.relname, '_', 2)::int8, c.relname
FROM pg_catalog.pg_class AS c
WHERE c.relnamespace = 'pgtrickle_changes'::pg_catalog.regnamespace
  AND c.relkind = 'r'
  AND c.relname ~ '^stage_[0-9]+_[0-9a-f_]+$'
ORDER BY 1, 2
