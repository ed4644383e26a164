-- The storage tables of all stream tables in the cycle of one. %(id)s: pgt_id. Returns: oid.
SELECT st.pgt_relid::int8
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_id = ANY (pgtrickle._cycle_of(%(id)s))
