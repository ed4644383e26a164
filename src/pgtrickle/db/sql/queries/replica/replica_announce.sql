-- A commit is about to be made on top of the one that is known. %(relid)s, %(generation)s, %(committed)s: what it is made on; %(token)s: its own.
-- The last 16 are kept: more processes do not advance one replica at a time. Returns: a row if that is still the latest.
UPDATE pgtrickle.pgt_replicas AS p
SET announced = (p.announced || %(token)s::text)[greatest(cardinality(p.announced) - 14, 1):]
WHERE p.source_relid = %(relid)s AND p.generation = %(generation)s AND p.committed = %(committed)s
RETURNING true
