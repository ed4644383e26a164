-- Records, at an origin, the cuts of mirrors in other databases; not a cut with changes on both sides that have been netted meanwhile: see the
-- comment on pgt_readers.netted. Arrays of equal length: %(keys)s and %(mirrors)s of each reader, %(cuts)s snapshot texts.
UPDATE pgtrickle.pgt_readers AS r
SET snapshot = p.cut::pg_snapshot,
    updated_at = clock_timestamp()
FROM unnest(%(keys)s::text[], %(mirrors)s::int8[], %(cuts)s::text[]) AS p (reader_key, mirror_id, cut)
WHERE r.reader_key = p.reader_key AND r.mirror_id = p.mirror_id
  AND (r.netted IS NULL OR pg_snapshot_xmin(p.cut::pg_snapshot) >= r.netted)
