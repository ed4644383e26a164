-- The cuts at which readers of a source are: stream tables here, mirrors in other databases, the replica, and subscribers (the cut that they have
-- acknowledged and the cut that they were offered). %(relid)s: the source.
-- Readers that are stopped and will be loaded are omitted, because trimming does not wait for them either. Returns: snapshots as text.
SELECT (st.frontier -> pgtrickle._origin() ->> 'snapshot')
FROM pgtrickle.pgt_dependencies AS d
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = d.pgt_id
WHERE d.source_relid = %(relid)s
  AND st.frontier -> pgtrickle._origin() IS NOT NULL
  AND NOT (st.needs_reinit AND st.status IN ('ERROR', 'SUSPENDED'))
UNION
SELECT e.snapshot::text
FROM pgtrickle.pgt_readers AS e
WHERE e.source_relid = %(relid)s AND e.snapshot IS NOT NULL
UNION
SELECT p.snapshot::text
FROM pgtrickle.pgt_replicas AS p
WHERE p.source_relid = %(relid)s AND p.origin = pgtrickle._origin() AND p.snapshot IS NOT NULL
UNION
SELECT c.cut::text
FROM pgtrickle.pgt_subscribers AS u
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = u.pgt_id
CROSS JOIN LATERAL (VALUES (u.snapshot), (u.offered)) AS c (cut)
WHERE st.pgt_relid = %(relid)s AND u.origin = pgtrickle._origin() AND c.cut IS NOT NULL
