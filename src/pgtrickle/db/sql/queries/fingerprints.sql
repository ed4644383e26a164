-- What capture of each source rests on. %(relids)s: oid array.
-- Returns per source that exists: oid, fingerprint text 'structure' followed by ' attnum:state' of each captured column.
-- Everything goes by xmin of the catalog rows: a thing that was changed and changed back is still a change.
SELECT
    s.relid::int8,
    coalesce((
        SELECT pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(',', c.oid, c.relpersistence, i.parents, t.triggers), ';' ORDER BY c.oid))
        FROM pgtrickle._family(s.relid) AS f
        JOIN pg_catalog.pg_class AS c ON c.oid = f.relid
        CROSS JOIN LATERAL (
            SELECT pg_catalog.string_agg(h.inhparent || '@' || h.xmin, ',' ORDER BY h.inhparent)
            FROM pg_catalog.pg_inherits AS h
            WHERE h.inhrelid = c.oid AND c.oid <> s.relid
        ) AS i(parents)
        CROSS JOIN LATERAL (
            SELECT pg_catalog.string_agg(w.tgname || coalesce(t.tgenabled::text || t.xmin, '-'), ',' ORDER BY w.tgname)
            FROM pgtrickle._wanted_triggers(s.relid, c.relkind) AS w
            LEFT JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = c.oid AND t.tgname = w.tgname
        ) AS t(triggers)
    ), '')
    || coalesce((
        SELECT pg_catalog.string_agg(' ' || a.attnum || ':' || a.state, '' ORDER BY a.attnum)
        FROM (
            SELECT own.attnum, pg_catalog.substr(pg_catalog.md5(pg_catalog.string_agg(
                       pg_catalog.concat_ws(',', m.attrelid, m.attnum, m.atttypid, m.attisdropped, m.xmin), ';' ORDER BY m.attrelid)), 1, 12)
            FROM pgtrickle.pgt_sources AS p
            CROSS JOIN LATERAL pg_catalog.unnest(p.captured_columns) AS k(attnum)
            JOIN pg_catalog.pg_attribute AS own ON own.attrelid = s.relid AND own.attnum = k.attnum
            CROSS JOIN LATERAL pgtrickle._family(s.relid) AS f
            JOIN pg_catalog.pg_attribute AS m ON m.attrelid = f.relid AND m.attname = own.attname
            WHERE p.source_relid = s.relid
            GROUP BY own.attnum
        ) AS a(attnum, state)
    ), '')
FROM pg_catalog.unnest(%(relids)s::oid[]) AS s(relid)
JOIN pg_catalog.pg_class AS exist ON exist.oid = s.relid
