-- What a probe view reads now, views on the way included. %(probe)s: its name.
-- Returns for each relation: oid, name for people, attribute numbers that are read.
SELECT
    x.relid::int8,
    x.relid::pg_catalog.regclass::text,
    coalesce(pg_catalog.array_agg(DISTINCT a.attnum) FILTER (WHERE a.attnum IS NOT NULL), '{}')
FROM pgtrickle._columns_read(%(probe)s::pg_catalog.regclass) AS x
LEFT JOIN LATERAL pg_catalog.unnest(x.columns) AS a(attnum) ON true
GROUP BY x.relid
ORDER BY 2
