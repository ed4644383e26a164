-- The fingerprint of each source: everything that its capture depends on. %(relids)s: oid array.
-- Returns for each source that exists: oid, and a text with 'structure', then ' identity:state', ' name:state', then for each column that is captured or
-- that a table in mode FULL reads ' attnum:state' and ' mattnum:meaning'.
-- The structure contains the buffer's oid, because rows of a buffer that was dropped are lost to every reader. A missing trigger is missing in the text.
-- The identity is what the text of a query depends on and capture does not: row security that applies to the owner, the rule of a view.
-- The name is for readers in other databases: another table may have it now.
-- The meaning of a column is what its values and their texts depend on: name, type, file. It does not contain the modifier, defaults, NOT NULL or statistics.
-- A column has one only if its capture function reports writes while the column has another name (model/fingerprint.py).
-- Everything except the meaning uses xmin of catalog rows, so an object that was changed and changed back has another fingerprint.
-- Every refresh runs this statement. It is one plain query without functions, so that the driver can prepare it.
WITH RECURSIVE family AS (
    SELECT c.oid AS source, c.oid AS relid, c.relkind, c.relpersistence, c.relfilenode,
           coalesce((SELECT pg_catalog.string_agg(i.inhparent || '@' || i.xmin, ',' ORDER BY i.inhseqno)
                     FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid = c.oid), '') AS parents
    FROM pg_catalog.unnest(%(relids)s::oid[]) AS s(relid)
    JOIN pg_catalog.pg_class AS c ON c.oid = s.relid
    UNION
    SELECT f.source, i.inhrelid, c.relkind, c.relpersistence, c.relfilenode, i.inhparent || '@' || i.xmin
    FROM family AS f
    JOIN pg_catalog.pg_inherits AS i ON i.inhparent = f.relid
    JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
    -- Partitions of a stream table are left out: refreshes create them, and write to the partitioned table.
    WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_relid = f.relid AND st.partition_by IS NOT NULL)
), structure AS (
    SELECT
        f.source,
        pg_catalog.md5(pg_catalog.string_agg(
            -- Readers of partitioned tables whose capture did not see all moves (earlier versions) are loaded again, too.
            pg_catalog.concat_ws(',', f.relid, f.relpersistence, f.parents, t.triggers, CASE WHEN f.relkind = 'p' THEN 'moves' END), ';'
            ORDER BY f.relid, f.parents
        )) AS text
    FROM family AS f
    LEFT JOIN LATERAL (
        SELECT pg_catalog.string_agg(t.tgname || t.tgenabled::text || t.xmin, ',' ORDER BY t.tgname) AS triggers
        FROM pg_catalog.pg_trigger AS t
        WHERE t.tgrelid = f.relid AND pg_catalog.starts_with(t.tgname, 'pgtrickle_' || f.source || '_')
    ) AS t ON true
    GROUP BY f.source
), columns AS (
    SELECT
        c.source,
        pg_catalog.string_agg(
            ' ' || c.attnum || ':' || c.state || coalesce(' m' || c.attnum || ':' || c.meaning, ''), '' ORDER BY c.attnum
        ) AS text
    FROM (
        SELECT
            f.source,
            own.attnum,
            pg_catalog.substr(pg_catalog.md5(pg_catalog.string_agg(
                pg_catalog.concat_ws(',', m.attrelid, m.attnum, m.atttypid, m.attisdropped, m.xmin, l.labels), ';' ORDER BY m.attrelid
            )), 1, 12) AS state,
            -- A new file means that the rows were rewritten, perhaps with other values.
            CASE WHEN k.reports_renames THEN pg_catalog.substr(pg_catalog.md5(pg_catalog.string_agg(
                pg_catalog.concat_ws(
                    ',', m.attrelid, m.attnum, m.attname, m.atttypid, m.attcollation, m.attisdropped, f.relfilenode,
                    CASE WHEN m.attgenerated <> '' THEN m.xmin END, l.labels
                ), ';' ORDER BY m.attrelid
            )), 1, 12) END AS meaning
        FROM (
            SELECT p.source_relid, pg_catalog.unnest(p.captured_columns) AS attnum, p.reports_renames
            FROM pgtrickle.pgt_sources AS p
            WHERE p.source_relid = ANY (%(relids)s::oid[])
            UNION
            SELECT v.attrelid, v.attnum, coalesce(p.reports_renames, false)
            FROM pg_catalog.pg_attribute AS v
            LEFT JOIN pgtrickle.pgt_sources AS p ON p.source_relid = v.attrelid
            WHERE v.attrelid = ANY (%(relids)s::oid[]) AND v.attgenerated = 'v' AND v.attnum > 0
            UNION
            -- A refresh in mode FULL converts values to the types that the columns had when it was prepared.
            SELECT d.source_relid, pg_catalog.unnest(d.columns_used), coalesce(p.reports_renames, false)
            FROM pgtrickle.pgt_dependencies AS d
            JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = d.pgt_id
            LEFT JOIN pgtrickle.pgt_sources AS p ON p.source_relid = d.source_relid
            WHERE d.source_relid = ANY (%(relids)s::oid[]) AND st.effective_refresh_mode = 'FULL'
        ) AS k
        JOIN pg_catalog.pg_attribute AS own ON own.attrelid = k.source_relid AND own.attnum = k.attnum
        JOIN (SELECT DISTINCT source, relid, relfilenode FROM family) AS f ON f.source = k.source_relid
        JOIN pg_catalog.pg_attribute AS m ON m.attrelid = f.relid AND m.attname = own.attname
        LEFT JOIN LATERAL (
            -- A renamed label is another text for the same value: rows and groups are known by their text.
            SELECT pg_catalog.string_agg(e.xmin::text, '/' ORDER BY e.oid) AS labels
            FROM pg_catalog.pg_type AS y
            JOIN pg_catalog.pg_enum AS e ON e.enumtypid = ANY (ARRAY[y.oid, y.typelem, y.typbasetype])
            WHERE y.oid = m.atttypid
        ) AS l ON true
        GROUP BY f.source, own.attnum, k.reports_renames
    ) AS c
    GROUP BY c.source
)
SELECT
    s.source::int8,
    s.text || '.' || coalesce(pg_catalog.to_regclass('pgtrickle_changes.changes_' || s.source)::oid::text, '-')
        || ' identity:' || pg_catalog.substr(pg_catalog.md5(pg_catalog.concat_ws(
            '.', o.relrowsecurity AND o.relforcerowsecurity, r.xmin)), 1, 12)
        || ' name:' || pg_catalog.substr(pg_catalog.md5(pg_catalog.concat_ws('.', n.nspname, o.relname)), 1, 12)
        || coalesce(c.text, '')
FROM structure AS s
JOIN pg_catalog.pg_class AS o ON o.oid = s.source
JOIN pg_catalog.pg_namespace AS n ON n.oid = o.relnamespace
LEFT JOIN pg_catalog.pg_rewrite AS r ON r.ev_class = o.oid AND r.ev_type = '1' AND o.relkind = 'v'
LEFT JOIN columns AS c ON c.source = s.source
