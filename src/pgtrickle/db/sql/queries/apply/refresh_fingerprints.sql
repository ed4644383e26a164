-- Stores the fingerprints that the sources of stream tables had at the new frontiers.
-- The parameters are arrays of equal length: %(ids)s, %(relids)s, %(fingerprints)s.
UPDATE pgtrickle.pgt_dependencies AS d
SET fingerprint = f.fingerprint
FROM unnest(%(ids)s::int8[], %(relids)s::int8[], %(fingerprints)s::text[]) AS f (pgt_id, relid, fingerprint)
WHERE d.pgt_id = f.pgt_id AND d.source_relid = f.relid::oid AND d.fingerprint IS DISTINCT FROM f.fingerprint
