-- Stream tables that cannot be refreshed because of the mirrors that they read. %(ids)s: array of pgt_id.
-- Returns: pgt_id, why.
SELECT r.pgt_id, min(r.reason)
FROM (
    SELECT
        d.pgt_id,
        CASE
            WHEN NOT bool_and(u.is_populated) THEN
                format(
                    'waits for %%s of database %%s to be loaded',
                    min(format('%%I.%%I', m.origin_schema, m.origin_table)) FILTER (WHERE NOT u.is_populated), min(m.origin_database)
                )
            WHEN count(DISTINCT u.frontier -> m.origin_key -> 'snapshot') > 1 THEN
                format('waits until its tables of database %%s are at one instant', min(m.origin_database))
        END AS reason
    FROM pgtrickle.pgt_dependencies AS d
    JOIN pgtrickle.pgt_stream_tables AS u ON u.pgt_relid = d.source_relid
    JOIN pgtrickle.pgt_mirrors AS m ON m.pgt_id = u.pgt_id
    WHERE d.pgt_id = ANY (%(ids)s::int8[])
    GROUP BY d.pgt_id, m.origin_key
) AS r
WHERE r.reason IS NOT NULL
GROUP BY r.pgt_id
