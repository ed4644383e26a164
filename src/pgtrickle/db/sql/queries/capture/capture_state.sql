-- Everything that decides what has to be done to capture a table.
-- %(relid)s: the source. %(attnums)s: int2 array, the columns needed in addition to those already captured and those that mirrors in other databases use.
-- Returns no row if the table does not exist. Otherwise: quoted qualified name; whether a row of pgt_sources exists; the needed columns as JSON
-- [{attnum, name, type (base type without modifier), collation, typid, declared, routes}]; needed columns that were dropped; columns of the buffer as JSON
-- {name: type oid}, or NULL; source text of the capture function, or NULL; triggers to create as JSON [{table, name, event, state, exists}];
-- a partition or child that cannot be captured; statements that drop our triggers from tables that are no longer a partition or child, or that
-- need other triggers now, and statements that enable clones of the trigger for moves in partitioned partitions and disable those in others.
WITH RECURSIVE wanted AS (
    SELECT DISTINCT w.attnum
    FROM (
        SELECT pg_catalog.unnest(%(attnums)s::int2[])
        UNION ALL
        SELECT pg_catalog.unnest(s.captured_columns) FROM pgtrickle.pgt_sources AS s WHERE s.source_relid = %(relid)s
        UNION ALL
        SELECT pg_catalog.unnest(e.columns_used) FROM pgtrickle.pgt_readers AS e WHERE e.source_relid = %(relid)s
        UNION ALL
        SELECT pg_catalog.unnest(p.columns_used) FROM pgtrickle.pgt_replicas AS p WHERE p.source_relid = %(relid)s AND p.origin = pgtrickle._origin()
        UNION ALL
        SELECT pg_catalog.unnest(pgtrickle._routing_columns(%(relid)s::oid))
    ) AS w(attnum)
    -- Triggers do not see virtual columns, which are computed from others.
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS v WHERE v.attrelid = %(relid)s AND v.attnum = w.attnum AND v.attgenerated = 'v')
), columns AS (
    SELECT a.attnum, a.attname, a.atttypid, a.attcollation
    FROM wanted AS w
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = %(relid)s AND a.attnum = w.attnum AND a.attnum > 0 AND NOT a.attisdropped
), bases AS (
    SELECT c.attnum, c.atttypid AS typid FROM columns AS c
    UNION ALL
    SELECT b.attnum, t.typbasetype
    FROM bases AS b
    JOIN pg_catalog.pg_type AS t ON t.oid = b.typid AND t.typtype = 'd'
), typed AS (
    SELECT c.attnum, c.attname, c.atttypid, t.oid AS typid, pg_catalog.format_type(t.oid, -1) AS type,
           CASE WHEN c.attcollation NOT IN (0, t.typcollation) THEN pg_catalog.format('%%I.%%I', n.nspname, l.collname) END AS collation
    FROM columns AS c
    JOIN bases AS b ON b.attnum = c.attnum
    JOIN pg_catalog.pg_type AS t ON t.oid = b.typid AND t.typtype <> 'd'
    LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = c.attcollation
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = l.collnamespace
)
SELECT
    pg_catalog.format('%%I.%%I', n.nspname, r.relname),
    EXISTS (SELECT FROM pgtrickle.pgt_sources AS s
            WHERE s.source_relid = r.oid
              AND s.captured_columns = (SELECT coalesce(pg_catalog.array_agg(t.attnum ORDER BY t.attnum), '{}') FROM typed AS t)),
    (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
                'attnum', t.attnum, 'name', t.attname, 'type', t.type, 'collation', t.collation, 'typid', t.typid::int8,
                'declared', t.atttypid::int8, 'routes', t.attnum = ANY (pgtrickle._routing_columns(r.oid)))
                ORDER BY t.attnum), '[]')
     FROM typed AS t),
    (SELECT pg_catalog.array_agg(w.attnum)
     FROM wanted AS w
     WHERE w.attnum = ANY (%(attnums)s::int2[]) AND w.attnum NOT IN (SELECT c.attnum FROM columns AS c)),
    (SELECT pg_catalog.json_object_agg(a.attname, a.atttypid::int8)
     FROM pg_catalog.pg_attribute AS a
     WHERE a.attrelid = pg_catalog.to_regclass('pgtrickle_changes.changes_' || r.oid) AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT p.prosrc
     FROM pg_catalog.pg_proc AS p
     WHERE p.pronamespace = 'pgtrickle_changes'::pg_catalog.regnamespace AND p.proname = 'capture_' || r.oid),
    (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
                'table', pg_catalog.format('%%I.%%I', mn.nspname, m.relname), 'name', w.tgname, 'event', w.event, 'state', w.state,
                'exists', t.oid IS NOT NULL) ORDER BY m.oid, w.tgname), '[]')
     FROM pgtrickle._family(r.oid) AS f
     JOIN pg_catalog.pg_class AS m ON m.oid = f.relid
     JOIN pg_catalog.pg_namespace AS mn ON mn.oid = m.relnamespace
     CROSS JOIN LATERAL pgtrickle._wanted_triggers(r.oid, m.relkind) AS w
     LEFT JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = m.oid AND t.tgname = w.tgname
     WHERE t.tgenabled IS DISTINCT FROM w.state AND (w.label <> 'MOVE' OR m.oid = r.oid OR t.oid IS NOT NULL)),
    (SELECT pg_catalog.min(pg_catalog.format('%%s', f.relid::pg_catalog.regclass))
     FROM pgtrickle._family(r.oid) AS f
     WHERE f.relkind NOT IN ('r', 'p')),
    (SELECT coalesce(pg_catalog.json_agg(pg_catalog.format(
                CASE WHEN t.tgparentid = 0 THEN 'DROP TRIGGER %%1$I ON %%2$s' ELSE 'ALTER TABLE ONLY %%2$s %%3$s TRIGGER %%1$I' END,
                t.tgname, pg_catalog.format('%%I.%%I', mn.nspname, m.relname), CASE m.relkind WHEN 'p' THEN 'ENABLE' ELSE 'DISABLE' END)), '[]')
     FROM pg_catalog.pg_trigger AS t
     JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
     JOIN pg_catalog.pg_class AS m ON m.oid = t.tgrelid
     JOIN pg_catalog.pg_namespace AS mn ON mn.oid = m.relnamespace
     WHERE p.pronamespace = 'pgtrickle_changes'::pg_catalog.regnamespace
       AND p.proname = 'capture_' || r.oid
       AND CASE WHEN t.tgparentid <> 0
                THEN t.tgenabled <> CASE m.relkind WHEN 'p' THEN 'O' ELSE 'D' END
                     AND EXISTS (SELECT FROM pgtrickle._family(r.oid) AS f WHERE f.relid = t.tgrelid)
                     AND t.tgname IN (SELECT w.tgname FROM pgtrickle._wanted_triggers(r.oid, r.relkind) AS w)
                ELSE NOT EXISTS (SELECT
                       FROM pgtrickle._family(r.oid) AS f
                       CROSS JOIN LATERAL pgtrickle._wanted_triggers(r.oid, f.relkind) AS w
                       WHERE f.relid = t.tgrelid AND w.tgname = t.tgname) END)
FROM pg_catalog.pg_class AS r
JOIN pg_catalog.pg_namespace AS n ON n.oid = r.relnamespace
WHERE r.oid = %(relid)s
