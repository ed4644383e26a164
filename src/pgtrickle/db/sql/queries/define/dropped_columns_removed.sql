-- Removes dropped columns from what a stream table is recorded to read: its query does not need them. %(id)s: pgt_id.
UPDATE pgtrickle.pgt_dependencies AS d
SET columns_used = k.attnums, column_names = k.names
FROM pgtrickle.pgt_dependencies AS old
CROSS JOIN LATERAL (
    SELECT
        coalesce(array_agg(u.attnum ORDER BY u.i) FILTER (WHERE NOT a.attisdropped), '{}'),
        coalesce(array_agg(u.name ORDER BY u.i) FILTER (WHERE NOT a.attisdropped), '{}')
    FROM unnest(old.columns_used, old.column_names) WITH ORDINALITY AS u (attnum, name, i)
    JOIN pg_attribute AS a ON a.attrelid = old.source_relid AND a.attnum = u.attnum
) AS k (attnums, names)
WHERE old.pgt_id = %(id)s AND d.pgt_id = old.pgt_id AND d.source_relid = old.source_relid AND d.columns_used <> k.attnums
