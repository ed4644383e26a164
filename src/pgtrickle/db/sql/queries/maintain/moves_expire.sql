-- Deletes notes of moves between partitions that no statement will delete: those of transactions that have ended. No parameters.
DELETE FROM pgtrickle_changes.moves WHERE xid < pg_snapshot_xmin(pg_current_snapshot())
