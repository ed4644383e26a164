-- The probe's query, names qualified but for temporary tables (run with an empty search_path). Returns: text.
SELECT rtrim(btrim(pg_get_viewdef('pg_temp.__pgt_probe'::regclass), E' \n'), ';')
