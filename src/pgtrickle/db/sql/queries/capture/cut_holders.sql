-- Sessions that may use a cut that is not recorded yet. No parameters.
-- Returns: xmin of this statement's snapshot, as text; the transactions (virtual ids) of sessions that may write frontiers or readers.
--
-- A refresh keeps the transaction whose snapshot is its cut open until the cut is committed. pg_locks is read after the snapshot was taken,
-- so each refresh with an earlier one is among them, or its cut is committed. Everybody may see all of pg_locks, and in pg_stat_activity
-- which database and role a session belongs to; processes without a role (autovacuum) refresh nothing. Members: they can SET ROLE.
SELECT
    pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text,
    ARRAY(
        SELECT l.virtualtransaction
        FROM pg_catalog.pg_locks AS l
        LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
        CROSS JOIN pg_catalog.pg_class AS c
        WHERE l.locktype = 'virtualxid'
          AND l.granted
          AND l.pid <> pg_catalog.pg_backend_pid()
          AND c.oid = 'pgtrickle.pgt_stream_tables'::pg_catalog.regclass
          AND (
              a.pid IS NULL
              OR (
                  a.datname = pg_catalog.current_database()
                  AND (
                      pg_catalog.pg_has_role(a.usesysid, c.relowner, 'MEMBER')
                      OR pg_catalog.has_table_privilege(a.usesysid, c.oid, 'UPDATE')
                      OR pg_catalog.has_table_privilege(a.usesysid, 'pgtrickle.pgt_readers'::pg_catalog.regclass, 'UPDATE')
                  )
              )
          )
    )
