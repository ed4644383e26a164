-- Storage tables that still exist. No parameters. Returns: quoted qualified name, readers before what they read.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
FROM pgtrickle.pgt_stream_tables AS st
JOIN pg_catalog.pg_class AS c ON c.oid = st.pgt_relid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
ORDER BY st.pgt_id DESC
