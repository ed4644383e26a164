-- Mirrors among relations. %(relids)s. Returns: the name here, the table of another database, whether the mirror has rows.
SELECT n.nspname || '.' || c.relname, pgtrickle._origin_of(c.oid), m.is_stored
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_relid = c.oid
JOIN pgtrickle.pgt_mirrors AS m ON m.pgt_id = st.pgt_id
WHERE c.oid = ANY (%(relids)s::int8[]::oid[])
