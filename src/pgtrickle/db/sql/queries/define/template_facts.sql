-- What a compiled template depends on besides the relations that it reads. %(relids)s: their oids.
-- Returns: names of the database's own aggregates and set-returning functions; whether the database has operators of its own; columns of the relations with
-- another collation than the default.
SELECT
    ARRAY(SELECT DISTINCT p.proname::text FROM pg_proc AS p WHERE p.oid >= 16384 AND (p.prokind = 'a' OR p.proretset) ORDER BY 1),
    EXISTS (SELECT FROM pg_operator AS o WHERE o.oid >= 16384),
    (
        SELECT coalesce(jsonb_agg(jsonb_build_array(a.attrelid::regclass::text, a.attnum, l.collname, l.collprovider, l.collisdeterministic)
                        ORDER BY a.attrelid::regclass::text, a.attnum), '[]')
        FROM pg_attribute AS a
        JOIN pg_collation AS l ON l.oid = a.attcollation
        WHERE a.attrelid = ANY (%(relids)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND l.collname <> 'default'
    )
