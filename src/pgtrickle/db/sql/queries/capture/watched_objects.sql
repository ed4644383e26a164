-- Objects whose change may affect a stream table although no row is captured. %(ids)s: array of pgt_id, or NULL for all stream tables.
-- Returns: the object that stream tables name (a source or a function), what of it is watched (r: relation, f: function, t: enum type), and its oid.
-- A source is watched with its partitions and children, and with the enum types of its columns. Stream tables as sources are not watched: only
-- pgtrickle changes them.
WITH RECURSIVE family AS (
    SELECT d.source_relid AS source, d.source_relid AS relid
    FROM pgtrickle.pgt_dependencies AS d
    WHERE d.source_type <> 'STREAM_TABLE' AND (%(ids)s::int8[] IS NULL OR d.pgt_id = ANY (%(ids)s::int8[]))
    UNION
    SELECT f.source, i.inhrelid
    FROM family AS f
    JOIN pg_catalog.pg_inherits AS i ON i.inhparent = f.relid
)
SELECT f.source::int8, 'r', f.relid::int8
FROM family AS f
UNION
SELECT f.source::int8, 't', e.enumtypid::int8
FROM family AS f
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = f.relid AND a.attnum > 0 AND a.atttypid >= 16384
JOIN pg_catalog.pg_type AS y ON y.oid = a.atttypid
JOIN pg_catalog.pg_enum AS e ON e.enumtypid = ANY (ARRAY[y.oid, y.typelem, y.typbasetype])
UNION
SELECT u.oid::int8, 'f', u.oid::int8
FROM pgtrickle.pgt_stream_tables AS st
CROSS JOIN LATERAL pg_catalog.unnest(st.functions_used || st.functions_reached) AS u (oid)
WHERE (st.functions_used <> '{}' OR st.functions_reached <> '{}') AND (%(ids)s::int8[] IS NULL OR st.pgt_id = ANY (%(ids)s::int8[]))
