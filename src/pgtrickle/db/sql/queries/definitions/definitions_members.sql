-- Qualified names of stream tables. %(names)s: as the caller writes them. Returns: each quoted and qualified, sorted.
SELECT pg_catalog.format('%%I.%%I', st.pgt_schema, st.pgt_name)
FROM pg_catalog.unnest(%(names)s::text[]) AS m(name)
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = pgtrickle._find(m.name)
ORDER BY 1
