-- Up to where readers in other databases have read. No parameters.
-- Returns: the key of the database, its mirror, and two snapshots: what was read, and what was netted.
SELECT r.reader_key, r.mirror_id, r.snapshot::text, r.netted::text
FROM pgtrickle.pgt_readers AS r
