-- Announces a commit of a replica. %(relid)s, %(generation)s, %(committed)s: the commit that it follows; %(token)s: the token of the new commit.
-- The last 16 announcements are kept, because fewer processes than that advance one replica at a time.
-- Returns: a row if the commit that it follows is still the latest.
UPDATE pgtrickle.pgt_replicas AS p
SET announced = (p.announced || %(token)s::text)[greatest(cardinality(p.announced) - 14, 1):]
WHERE p.source_relid = %(relid)s AND p.generation = %(generation)s AND p.committed = %(committed)s
RETURNING true
