-- A table that is about to be loaded takes over the present state of its sources. %(id)s: pgt_id. %(relids)s, %(fingerprints)s: of each source.
UPDATE pgtrickle.pgt_dependencies AS d
SET fingerprint = f.fingerprint
FROM unnest(%(relids)s::oid[], %(fingerprints)s::text[]) AS f (relid, fingerprint)
WHERE d.pgt_id = %(id)s AND d.source_relid = f.relid AND d.fingerprint IS DISTINCT FROM f.fingerprint
