-- Records which privileges are missing at origins. %(ids)s, %(relids)s, %(readers)s: keys of pgt_privileges; %(words)s: the missing privilege, or NULL.
UPDATE pgtrickle.pgt_privileges AS p
SET lost_elsewhere = n.words
FROM unnest(%(ids)s::int8[], %(relids)s::int8[], %(readers)s::int8[], %(words)s::text[]) AS n (pgt_id, relid, reader, words)
WHERE p.pgt_id = n.pgt_id AND p.relid = n.relid::oid AND p.reader = n.reader::oid AND p.lost_elsewhere IS DISTINCT FROM n.words
