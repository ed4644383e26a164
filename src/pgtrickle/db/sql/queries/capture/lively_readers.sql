-- The positions of mirrors in other databases and of the replica that reported in the last minute. %(relid)s: the source. Returns: the least xmin, or NULL.
-- They are likely to have committed, or to be about to commit, a cut that they have not reported yet. Only changes before all these
-- positions are compacted: otherwise they would have to be loaded again each time.
SELECT pg_catalog.min(pg_catalog.pg_snapshot_xmin(e.snapshot)::text::numeric)::text
FROM (
    SELECT r.source_relid, r.snapshot, r.updated_at FROM pgtrickle.pgt_readers AS r
    UNION ALL
    SELECT p.source_relid, p.snapshot, p.updated_at FROM pgtrickle.pgt_replicas AS p WHERE p.origin = pgtrickle._origin()
) AS e
WHERE e.source_relid = %(relid)s AND e.updated_at > pg_catalog.clock_timestamp() - interval '1 minute'
