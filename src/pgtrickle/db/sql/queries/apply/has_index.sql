-- Whether a table has an index that serves lookups by one column. %(table)s: its name; %(column)s.
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = %(table)s::pg_catalog.regclass AND a.attname = %(column)s AND i.indnkeyatts = 1
      AND i.indpred IS NULL AND i.indisvalid
)
