-- Objects besides its sources that a stream table's query, or a view that it reads, names and that have another name now. %(id)s: pgt_id.
-- Returns: class, oid and attribute number of the object; its previous and its present name as text; whether the query itself names it.
SELECT
    k.classid::int8,
    k.objid::int8,
    k.objsubid,
    k.name || coalesce(' of ' || t.relation, ''),
    pgtrickle._name_of(k.classid, k.objid, k.objsubid),
    k.in_text
FROM pgtrickle.pgt_names AS k
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = k.pgt_id AND st.defined_in = pgtrickle._place()
CROSS JOIN LATERAL (SELECT CASE WHEN k.objsubid > 0 THEN k.objid::regclass::text END) AS t (relation)
WHERE k.pgt_id = %(id)s AND pgtrickle._is_called_otherwise(k.classid, k.objid, k.objsubid, k.name)
ORDER BY k.in_text DESC, k.name
