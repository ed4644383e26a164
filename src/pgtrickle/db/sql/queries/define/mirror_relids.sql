-- The storage tables of mirrors. %(ids)s: array of pgt_id. Returns: oid.
SELECT st.pgt_relid::int8 FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = ANY (%(ids)s::int8[])
