-- Records that a stream table reads a replica, or that it no longer does. %(relid)s: the source; %(pgt_id)s; %(reads)s: bool.
UPDATE pgtrickle.pgt_replicas AS p
SET readers = CASE WHEN %(reads)s THEN p.readers || %(pgt_id)s::int8 ELSE array_remove(p.readers, %(pgt_id)s::int8) END
WHERE p.source_relid = %(relid)s AND p.origin = pgtrickle._origin() AND (%(pgt_id)s::int8 = ANY (p.readers)) <> %(reads)s
