-- Removes a replica from the catalog, so that no changes are kept for it. %(relid)s: the source.
-- Returns: the location of the replica, if this database had one.
DELETE FROM pgtrickle.pgt_replicas AS p
WHERE p.source_relid = %(relid)s
RETURNING CASE WHEN p.origin = pgtrickle._origin() THEN p.location END
