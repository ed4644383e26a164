-- Records a commit of a replica. %(relid)s, %(generation)s, %(token)s: the commit; %(cut)s: its cut, as text; %(rows)s, %(files)s, %(bytes)s.
-- It is refused if it was not announced, or if changes on both sides of its cut have been netted meanwhile: see the comment on pgt_readers.netted.
-- Returns: a row if it was recorded.
UPDATE pgtrickle.pgt_replicas AS p
SET committed = %(token)s,
    announced = '{}',
    snapshot = %(cut)s::text::pg_snapshot,
    row_count = %(rows)s,
    file_count = %(files)s,
    bytes = %(bytes)s,
    last_error = NULL,
    updated_at = clock_timestamp()
WHERE p.source_relid = %(relid)s AND p.generation = %(generation)s
  AND (%(token)s = ANY (p.announced) OR p.committed = %(token)s)
  AND (p.netted IS NULL OR p.snapshot::text = %(cut)s OR pg_snapshot_xmin(%(cut)s::text::pg_snapshot) >= p.netted)
RETURNING true
