-- Deletes readings that no mirror can refer to any more: those before the earliest position that a mirror has reported. If there are no mirrors, it
-- deletes all readings after an hour. No parameters.
DELETE FROM pgtrickle.pgt_readings AS r
WHERE r.read_at < clock_timestamp() - interval '1 minute'
  AND CASE
      WHEN (SELECT count(e.snapshot) FROM pgtrickle.pgt_readers AS e) > 0
          THEN pg_snapshot_xmax(r.snapshot) < (SELECT min(pg_snapshot_xmax(e.snapshot)) FROM pgtrickle.pgt_readers AS e)
      ELSE r.read_at < clock_timestamp() - interval '1 hour'
  END
