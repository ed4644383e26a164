-- Sources of a stream table that do not exist any more, or that lack columns that it reads. %(id)s: pgt_id.
-- Returns: the source's name in the query, with its present name if it was renamed; whether it exists; whether another relation has this name now;
-- the names of its dropped columns.
SELECT
    format('%%I.%%I', d.source_schema, d.source_name)
    || CASE WHEN pgtrickle._is_renamed(d.source_relid, d.source_schema, d.source_name) THEN format(' (renamed to %%s)', d.source_relid::regclass) ELSE '' END,
    c.oid IS NOT NULL,
    to_regclass(format('%%I.%%I', d.source_schema, d.source_name)) IS NOT NULL,
    k.dropped
FROM pgtrickle.pgt_dependencies AS d
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = d.pgt_id AND st.defined_in = pgtrickle._place()
LEFT JOIN pg_class AS c ON c.oid = d.source_relid
CROSS JOIN LATERAL (
    SELECT ARRAY(
        SELECT quote_ident(u.name)
        FROM unnest(d.columns_used, d.column_names) AS u (attnum, name)
        JOIN pg_attribute AS a ON a.attrelid = d.source_relid AND a.attnum = u.attnum AND a.attisdropped
        ORDER BY u.attnum
    )
) AS k (dropped)
WHERE d.pgt_id = %(id)s AND d.source_name IS NOT NULL AND (c.oid IS NULL OR k.dropped <> '{}')
ORDER BY c.oid IS NOT NULL, 1
