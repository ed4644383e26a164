-- Rows from before roles were remembered by their numbers: the trigger note_creator fills created_key.
UPDATE pgtrickle.pgt_stream_tables SET created_by = created_by WHERE created_key IS NULL;
UPDATE pgtrickle.pgt_subscribers SET created_by = created_by WHERE created_key IS NULL;
UPDATE pgtrickle.pgt_refresh_groups SET created_by = created_by WHERE created_key IS NULL;
UPDATE pgtrickle.pgt_definitions SET created_by = created_by WHERE created_key IS NULL;

-- Definitions from before names were kept: while they work, their names are the present ones.
UPDATE pgtrickle.pgt_dependencies AS d
SET source_schema = n.nspname, source_name = c.relname, column_names = pgtrickle._column_names(c.oid, d.columns_used)
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = d.source_relid AND d.source_name IS NULL;
UPDATE pgtrickle.pgt_stream_tables SET defined_in = pgtrickle._place() WHERE defined_in IS NULL OR defined_in = pgtrickle._origin();
UPDATE pgtrickle.pgt_mirrors SET local_name = pgtrickle._table_name(local_relid) WHERE local_relid IS NOT NULL AND local_name IS NULL;
UPDATE pgtrickle.pgt_shared_sources SET local_name = pgtrickle._table_name(local_relid) WHERE local_name IS NULL;

-- The option had no effect and is refused now: an exported definition can be applied again.
UPDATE pgtrickle.pgt_stream_tables SET append_only = false WHERE append_only;
