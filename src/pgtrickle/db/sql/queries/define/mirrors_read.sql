-- Mirrors that a stream table reads. %(id)s: pgt_id. Returns: pgt_id of each.
SELECT m.pgt_id
FROM pgtrickle.pgt_dependencies AS d
JOIN pgtrickle.pgt_stream_tables AS t ON t.pgt_relid = d.source_relid
JOIN pgtrickle.pgt_mirrors AS m ON m.pgt_id = t.pgt_id
WHERE d.pgt_id = %(id)s
