-- The columns of relations that a role may read. %(relids)s, %(columns)s: relations and attribute numbers, arrays of the same length; %(role)s: its name.
-- Returns for each column: relation, attribute number, whether the role may.
SELECT
    a.attrelid::int8,
    a.attnum,
    pg_catalog.has_column_privilege(r.oid, a.attrelid, a.attnum, 'SELECT')
FROM unnest(%(relids)s::oid[], %(columns)s::int2[]) AS u(relid, attnum)
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = u.relid AND a.attnum = u.attnum AND NOT a.attisdropped
JOIN pg_catalog.pg_roles AS r ON r.rolname = %(role)s
ORDER BY a.attrelid, a.attnum
