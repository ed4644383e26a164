-- The probe's query, names qualified but for temporary tables (run with the path pg_catalog, pg_temp). Returns: text, oids of its operators.
SELECT
    pgtrickle._query_text('pg_temp.__pgt_probe'::regclass),
    pgtrickle._operators('pg_temp.__pgt_probe'::regclass)::int8[]
