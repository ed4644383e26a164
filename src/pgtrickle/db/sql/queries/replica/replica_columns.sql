-- The columns that the replica of a source should have, whichever reader is loaded first: those that stream tables with engine spark use, here and in other
-- databases. %(relid)s: the source; %(setting)s: the engine of stream tables without the option. Returns: attribute numbers.
SELECT coalesce(array_agg(DISTINCT u.attnum), '{}')::int4[]
FROM (
    SELECT c.attnum
    FROM pgtrickle.pgt_dependencies AS d
    JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_id)
    CROSS JOIN LATERAL unnest(d.columns_used) AS c(attnum)
    WHERE c.attnum <> ALL (coalesce(d.virtual_columns, '{}')) AND d.source_relid = %(relid)s AND coalesce(s.engine, %(setting)s) = 'spark'
    UNION ALL
    SELECT c.attnum
    FROM pgtrickle.pgt_readers AS e
    CROSS JOIN LATERAL unnest(e.columns_used) AS c(attnum)
    WHERE e.source_relid = %(relid)s AND e.reads_replica
) AS u
