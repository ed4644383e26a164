-- Stream tables from before direct writes were refused, and before their sources were guarded.
SELECT pgtrickle._protect(st.pgt_relid), pgtrickle._guard_sources(st.pgt_id)
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_schema <> 'pgtrickle_changes'
ORDER BY st.pgt_id;

SELECT pgtrickle._guard_reader(r)
FROM pgtrickle.pgt_readers AS r
ORDER BY r.reader_key, r.mirror_id;
