-- Forgets rows that moved between partitions of a source that is captured no longer. %(relid)s: the source.
DELETE FROM pgtrickle_changes.moves AS m
WHERE m.source = %(relid)s
