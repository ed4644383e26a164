-- The types of a probe view's columns, in order. %(probe)s: its name. Returns: oid, modifier, name.
SELECT a.atttypid::int8, a.atttypmod, format_type(a.atttypid, a.atttypmod)
FROM pg_attribute AS a
WHERE a.attrelid = %(probe)s::regclass AND a.attnum > 0
ORDER BY a.attnum
