-- Stream tables with subscribers, and their feeds. No parameters.
-- Returns: whether there are any; json [[oid, [attribute numbers of visible columns], feed]] of stream tables with subscribers, without those
-- that have to be loaded: a feed begins with all rows, so the load need not be in a buffer. The feed is NULL if
-- changes are not captured correctly, and differs whenever the table or its capture was changed.
SELECT
    EXISTS (SELECT FROM pgtrickle.pgt_subscribers) OR EXISTS (SELECT FROM pgtrickle.pgt_publications),
    (
        SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(st.pgt_relid::int8, a.attnums, pgtrickle._feed_of(st.pgt_relid))), '[]')
        FROM pgtrickle.pgt_stream_tables AS st
        JOIN pg_catalog.pg_class AS c ON c.oid = st.pgt_relid
        CROSS JOIN LATERAL (
            SELECT coalesce(pg_catalog.array_agg(a.attnum ORDER BY a.attnum), '{}') AS attnums
            FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = st.pgt_relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname !~ '^__pgt_'
        ) AS a
        WHERE st.is_populated
          AND st.pgt_id IN (SELECT u.pgt_id FROM pgtrickle.pgt_subscribers AS u)
    )
