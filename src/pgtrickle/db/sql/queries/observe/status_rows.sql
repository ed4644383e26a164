-- pgt_status() with the lag of each stream table behind its sources (0: nothing is pending). No parameters.
SELECT s.*, i.changes_pending, i.behind_seconds, i.stale
FROM pgtrickle.pgt_status() AS s
LEFT JOIN pgtrickle.stream_tables_info AS i ON i.pgt_id = s.pgt_id
ORDER BY s.name
