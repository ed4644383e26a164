-- Stores the fingerprints of mirrors' tables at their new frontiers. Arrays of equal length: %(ids)s, %(fingerprints)s.
UPDATE pgtrickle.pgt_mirrors AS m
SET fingerprint = f.fingerprint
FROM unnest(%(ids)s::int8[], %(fingerprints)s::text[]) AS f (pgt_id, fingerprint)
WHERE m.pgt_id = f.pgt_id AND m.fingerprint IS DISTINCT FROM f.fingerprint
