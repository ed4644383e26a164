-- How far mirrors in other databases are that have said so in the last minute. %(relid)s: the source. Returns: the least xmin, or NULL.
-- They are likely to have committed, or to be about to commit, a cut that they have not told yet. Netted out is only what is before all that
-- they may have: otherwise they would have to be loaded anew each time.
SELECT pg_catalog.min(pg_catalog.pg_snapshot_xmin(e.snapshot)::text::numeric)::text
FROM pgtrickle.pgt_readers AS e
WHERE e.source_relid = %(relid)s AND e.updated_at > pg_catalog.clock_timestamp() - interval '1 minute'
