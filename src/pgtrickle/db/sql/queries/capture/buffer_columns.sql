-- The columns of a buffer that hold images. %(relid)s: the source. Returns: name, oid of the type.
SELECT a.attname, a.atttypid::int8
FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid = pg_catalog.to_regclass('pgtrickle_changes.changes_' || %(relid)s::int8)
  AND a.attnum > 0
  AND NOT a.attisdropped
  AND a.attname ~ '^c[0-9]+$'
ORDER BY a.attnum
