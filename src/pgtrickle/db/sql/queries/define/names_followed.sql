-- Stores the current names of objects that only views name: PostgreSQL keeps the texts of views current. %(id)s: pgt_id.
UPDATE pgtrickle.pgt_names
SET name = pgtrickle._name_of(classid, objid, objsubid)
WHERE pgt_id = %(id)s AND pgtrickle._is_called_otherwise(classid, objid, objsubid, name)
