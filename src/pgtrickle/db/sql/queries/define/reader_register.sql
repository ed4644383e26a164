-- Registers, at an origin, a mirror in another database before it is loaded. An existing position is kept.
-- %(reader_key)s, %(server)s, %(database)s: its database; %(mirror_id)s: its pgt_id there; %(relid)s: the table; %(columns)s: int2 array;
-- %(reads_replica)s: it has no rows, the replica of the table is read instead.
INSERT INTO pgtrickle.pgt_readers AS r (reader_key, mirror_id, reader_server, reader_database, source_relid, columns_used, reads_replica)
VALUES (%(reader_key)s, %(mirror_id)s, %(server)s, %(database)s, %(relid)s, %(columns)s::int2[], %(reads_replica)s)
ON CONFLICT (reader_key, mirror_id) DO UPDATE
SET reader_server = EXCLUDED.reader_server,
    reader_database = EXCLUDED.reader_database,
    source_relid = EXCLUDED.source_relid,
    columns_used = EXCLUDED.columns_used,
    reads_replica = EXCLUDED.reads_replica,
    snapshot = CASE WHEN r.source_relid = EXCLUDED.source_relid THEN r.snapshot END,
    updated_at = clock_timestamp()
