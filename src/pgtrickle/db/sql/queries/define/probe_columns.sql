-- What the probe reads. Returns: oid, attribute numbers.
SELECT x.relid::int8, array_agg(DISTINCT a)
FROM pgtrickle._columns_read('pg_temp.__pgt_probe'::regclass::oid) AS x
CROSS JOIN LATERAL unnest(x.columns) AS a
GROUP BY x.relid
