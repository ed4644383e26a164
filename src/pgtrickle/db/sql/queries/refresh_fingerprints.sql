-- What a reader's sources looked like at its new frontier. %(pgt_id)s, %(relids)s oid array, %(fingerprints)s text array.
UPDATE pgtrickle.pgt_dependencies AS d
SET fingerprint = f.fingerprint
FROM unnest(%(relids)s::oid[], %(fingerprints)s::text[]) AS f (relid, fingerprint)
WHERE d.pgt_id = %(pgt_id)s AND d.source_relid = f.relid AND d.fingerprint IS DISTINCT FROM f.fingerprint
