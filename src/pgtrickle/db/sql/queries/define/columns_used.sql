-- What a stream table reads. %(id)s: pgt_id. Returns: oid of each source, attribute numbers.
SELECT d.source_relid::int8, d.columns_used FROM pgtrickle.pgt_dependencies AS d WHERE d.pgt_id = %(id)s
