-- The columns of a table, in order. %(relid)s: the table.
-- Returns: attnum; name; typid; typmod; oid of the collation; name of the collation ('default' stands for the database's own, NULL for a type without
-- collations); whether the collation is deterministic.
SELECT a.attnum, a.attname, a.atttypid::int8, a.atttypmod, a.attcollation::int8, c.collname, c.collisdeterministic
FROM pg_attribute AS a
LEFT JOIN pg_collation AS c ON c.oid = a.attcollation
WHERE a.attrelid = %(relid)s::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
