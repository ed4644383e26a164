-- How many of some columns a table has. %(table)s: its name; %(columns)s: names. Returns: their number, 0 if there is no such table.
SELECT count(*)
FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid = pg_catalog.to_regclass(%(table)s) AND a.attname = ANY (%(columns)s)
