-- Whether a table has a column. %(table)s: its name; %(column)s. Returns: one boolean.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = %(table)s::pg_catalog.regclass AND a.attname = %(column)s
)
