-- Columns by which the rows of a mirror are found: those of a unique index, without NULLs. %(table)s: its name.
-- Returns no row where there is none, where a column has a collation (a text that comes from elsewhere would have another one) or
-- is of a user-defined type, whose operators may be in any schema.
-- pgtrickle._make_mirror makes an index over the rows' identity where there is none of these.
SELECT array_agg(a.attname::text ORDER BY k.ord)
FROM pg_index AS i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, ord)
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %(table)s::regclass AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
HAVING bool_and(a.attnotnull AND a.attcollation = 0 AND a.atttypid < 16384)
ORDER BY count(*), i.indexrelid
LIMIT 1
