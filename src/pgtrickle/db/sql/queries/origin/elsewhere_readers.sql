-- The roles that read columns of tables of another database through mirrors that replace them in queries. %(keys)s: the other databases.
-- Returns: key of the database, id of the stream table, oid of the mirror, oid of the role, its name, oid of the table there, its attribute numbers.
SELECT
    m.origin_key,
    p.pgt_id,
    p.relid::int8,
    p.reader::int8,
    r.rolname::text,
    m.origin_relid::int8,
    ARRAY(SELECT m.columns_used[c] FROM pg_catalog.unnest(p.columns) AS c)
FROM pgtrickle.pgt_mirrors AS m
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = m.pgt_id
JOIN pgtrickle.pgt_privileges AS p ON p.relid = st.pgt_relid AND p.is_elsewhere
JOIN pg_catalog.pg_roles AS r ON r.oid = p.reader
WHERE m.local_relid IS NULL AND m.origin_key = ANY (%(keys)s::text[])
