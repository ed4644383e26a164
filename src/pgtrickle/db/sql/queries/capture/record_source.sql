-- Notes what is captured. %(relid)s: the source; %(attnums)s: int2 array; %(fingerprint)s: text. Returns nothing.
INSERT INTO pgtrickle.pgt_sources (source_relid, captured_columns, fingerprint)
VALUES (%(relid)s, %(attnums)s::int2[], %(fingerprint)s)
ON CONFLICT (source_relid) DO UPDATE
SET captured_columns = EXCLUDED.captured_columns,
    fingerprint = EXCLUDED.fingerprint,
    updated_at = pg_catalog.clock_timestamp()
