-- Whether the role of the session may read the settings in files. No parameters.
SELECT
    has_table_privilege('pg_catalog.pg_file_settings', 'SELECT')
    AND has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'EXECUTE')
