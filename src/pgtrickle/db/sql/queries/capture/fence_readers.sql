-- Informs mirrors in other databases and the replica that a buffer will be compacted: see the comment on pgt_readers.netted.
-- %(relid)s: the source; %(horizon)s: the transaction (text) before which changes are netted. Returns nothing.
WITH replica AS (
    UPDATE pgtrickle.pgt_replicas AS p
    SET netted = greatest(p.netted, %(horizon)s::text::xid8)
    WHERE p.source_relid = %(relid)s
)
UPDATE pgtrickle.pgt_readers AS e
SET netted = greatest(e.netted, %(horizon)s::text::xid8)
WHERE e.source_relid = %(relid)s
