-- Replicas that are to advance, because their changes are many or old: until then the change buffer keeps them.
-- %(share)s: of the rows; %(rows)s: fewer changes are few; %(seconds)s: older commits are old. Returns: the sources.
SELECT r.source_oid::int8
FROM pgtrickle.replicas() AS r
WHERE r.state = 'ready'
  AND (r.pending_rows > greatest(%(share)s::float8 * r.row_count, %(rows)s)
       OR (r.pending_rows > 0 AND r.committed_at < clock_timestamp() - make_interval(secs => %(seconds)s)))
ORDER BY 1
