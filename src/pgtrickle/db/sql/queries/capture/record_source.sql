-- Records what is captured. %(relid)s: the source; %(attnums)s: int2 array; %(fingerprint)s: text. Returns nothing.
INSERT INTO pgtrickle.pgt_sources (source_relid, captured_columns, fingerprint, reports_renames)
VALUES (%(relid)s, %(attnums)s::int2[], %(fingerprint)s, true)
ON CONFLICT (source_relid) DO UPDATE
SET captured_columns = EXCLUDED.captured_columns,
    fingerprint = EXCLUDED.fingerprint,
    reports_renames = EXCLUDED.reports_renames,
    updated_at = pg_catalog.clock_timestamp()
