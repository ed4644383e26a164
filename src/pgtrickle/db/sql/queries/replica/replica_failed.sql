-- Records why a replica could not be built or advanced. %(relid)s: the source; %(message)s.
UPDATE pgtrickle.pgt_replicas AS p
SET last_error = %(message)s
WHERE p.source_relid = %(relid)s AND p.origin = pgtrickle._origin()
