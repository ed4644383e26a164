-- Forgets the position of a reader, at the origin: no changes are kept for it any more. %(reader)s: the key of its database; %(mirror)s: its mirror.
DELETE FROM pgtrickle.pgt_readers AS r
WHERE r.reader_key = %(reader)s AND r.mirror_id = %(mirror)s
