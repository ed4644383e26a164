-- The columns of a table. %(relid)s. Returns: name and number of each.
SELECT a.attname::text, a.attnum
FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid = %(relid)s AND a.attnum > 0 AND NOT a.attisdropped
