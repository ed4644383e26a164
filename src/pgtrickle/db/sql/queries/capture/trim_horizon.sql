-- How far a buffer may be trimmed. %(relid)s: the source.
-- Returns: whether a reader prevents all trimming; the xid (text) below which every reader has seen everything; readers to fence;
-- the LSN (text) up to which replication slots have confirmed, NULL when the source is not published.
--
-- A row may go when it is visible in the cut of every reader. Six kinds of readers:
--  * with a usable frontier: everything below its xmin has been seen;
--  * without one, or about to load, and running: its load may have taken its cut already and not yet committed it, so all stays;
--  * the same, but stopped (ERROR, SUSPENDED): it will load when it is resumed, with a later cut. A worker that still loads it
--    is fenced by its epoch, so that the buffer need not be kept;
--  * mirrors in other databases: their cut is noted here after they have committed it, so they have seen that much or more. One that
--    is not loaded yet prevents all trimming; this database does not know whether it is stopped;
--  * replicas: the same, in pgt_replicas;
--  * subscribers: at the cut that they have acknowledged. One whose cut is of another server, before a restore, holds all of it.
-- A reader that is created meanwhile takes its cut after this statement's snapshot, so it sees whatever is below the horizon.
SELECT
    coalesce(pg_catalog.bool_or(r.cut IS NULL AND NOT r.stopped), false),
    coalesce(pg_catalog.min(pg_catalog.pg_snapshot_xmin(r.cut)::text::numeric) FILTER (WHERE NOT (r.stopped AND r.reload)),
             pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::numeric)::text,
    coalesce(pg_catalog.array_agg(r.pgt_id) FILTER (WHERE r.stopped AND r.reload), '{}'),
    CASE WHEN EXISTS (SELECT
                      FROM pgtrickle.pgt_publications AS p
                      JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = p.pgt_id
                      WHERE st.pgt_relid = %(relid)s)
         THEN (SELECT pg_catalog.min(coalesce(h.lsn, '0/0'))::text FROM pgtrickle._holding_slots() AS h) END
FROM (
    SELECT
        st.pgt_id,
        (st.frontier -> pgtrickle._origin() ->> 'snapshot')::pg_catalog.pg_snapshot AS cut,
        st.status IN ('ERROR', 'SUSPENDED') AS stopped,
        st.needs_reinit OR st.frontier -> pgtrickle._origin() IS NULL AS reload
    FROM pgtrickle.pgt_dependencies AS d
    JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = d.pgt_id
    WHERE d.source_relid = %(relid)s
    UNION ALL
    SELECT NULL, e.snapshot, false, false
    FROM pgtrickle.pgt_readers AS e
    WHERE e.source_relid = %(relid)s
    UNION ALL
    SELECT NULL, p.snapshot, false, false
    FROM pgtrickle.pgt_replicas AS p
    WHERE p.source_relid = %(relid)s AND p.origin = pgtrickle._origin()
    UNION ALL
    SELECT NULL, CASE WHEN u.origin = pgtrickle._origin() THEN u.snapshot END, false, false
    FROM pgtrickle.pgt_subscribers AS u
    JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = u.pgt_id
    WHERE st.pgt_relid = %(relid)s
) AS r
