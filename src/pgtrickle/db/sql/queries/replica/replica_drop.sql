-- Nothing is kept for a replica any more. %(relid)s: the source. Returns: its location, if there was one of this database.
DELETE FROM pgtrickle.pgt_replicas AS p
WHERE p.source_relid = %(relid)s
RETURNING CASE WHEN p.origin = pgtrickle._origin() THEN p.location END
