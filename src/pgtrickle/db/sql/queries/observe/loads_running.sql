-- Loads that are running in this database. No parameters.
SELECT p.name, p.phase, p.rows_done, p.rows_estimated, p.rows_per_second, p.remaining_seconds, p.elapsed_seconds
FROM pgtrickle.load_progress() AS p
