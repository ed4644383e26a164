-- The columns of a table. %(relid)s: the table.
-- Returns a row for each, in order: attnum, name, typid, typmod, oid of the collation; its name (default: the database's own; NULL: the
-- type has none), whether it is deterministic.
SELECT a.attnum, a.attname, a.atttypid::int8, a.atttypmod, a.attcollation::int8, c.collname, c.collisdeterministic
FROM pg_attribute AS a
LEFT JOIN pg_collation AS c ON c.oid = a.attcollation
WHERE a.attrelid = %(relid)s::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
