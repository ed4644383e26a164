-- A type that the text of a query names and that was dropped or renamed: its name may be that of another type now. %(id)s: pgt_id.
-- Returns: its name, if there is one.
SELECT k.name
FROM pgtrickle.pgt_names AS k
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = k.pgt_id
WHERE k.pgt_id = %(id)s AND k.in_text AND k.classid = 'pg_catalog.pg_type'::pg_catalog.regclass
  AND st.defined_in = pgtrickle._place()
  AND pgtrickle._name_of(k.classid, k.objid, k.objsubid) IS DISTINCT FROM k.name
LIMIT 1
