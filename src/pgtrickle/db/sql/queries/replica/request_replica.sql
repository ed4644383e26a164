-- Keeps a replica although nobody reads it at the moment: it was requested by name. %(relid)s: its source.
UPDATE pgtrickle.pgt_replicas AS r
SET is_requested = true
WHERE r.source_relid = %(relid)s
