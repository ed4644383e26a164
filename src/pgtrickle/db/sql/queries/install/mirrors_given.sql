-- Makes the role of the control plane the creator of all mirrors. %(role)s: the new owner of all objects.
UPDATE pgtrickle.pgt_stream_tables SET created_by = %(role)s WHERE pgt_id IN (SELECT m.pgt_id FROM pgtrickle.pgt_mirrors AS m)
