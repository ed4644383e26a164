-- Says to mirrors in other databases that a buffer is about to be netted out: see the comment on pgt_readers.netted.
-- %(relid)s: the source; %(horizon)s: the transaction (text) before which changes are netted. Returns nothing.
UPDATE pgtrickle.pgt_readers AS e
SET netted = greatest(e.netted, %(horizon)s::text::xid8)
WHERE e.source_relid = %(relid)s
