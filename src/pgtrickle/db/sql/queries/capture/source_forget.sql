-- Forgets a source that is captured no longer. %(relid)s: the source.
DELETE FROM pgtrickle.pgt_sources AS s
WHERE s.source_relid = %(relid)s
