-- Replicas that have to advance, because many changes or old changes wait for them in the change buffer.
-- %(share)s: many changes, as a share of the rows; %(rows)s: fewer changes are never many; %(seconds)s: the age of a commit above which changes are old.
-- Returns: the sources.
SELECT r.source_oid::int8
FROM pgtrickle.replicas() AS r
WHERE r.state = 'ready'
  AND (r.pending_rows > greatest(%(share)s::float8 * r.row_count, %(rows)s)
       OR (r.pending_rows > 0 AND r.committed_at < clock_timestamp() - make_interval(secs => %(seconds)s)))
ORDER BY 1
