-- Whether a scheduler serves this database: by its lease behind a pooler, otherwise by its session. No parameters.
SELECT coalesce(
    (SELECT l.until > clock_timestamp() FROM pgtrickle.pgt_leases AS l WHERE l.name = 'scheduler'),
    EXISTS (
        SELECT
        FROM pg_catalog.pg_stat_activity AS a
        WHERE a.application_name = 'pgtrickle/scheduler' AND a.datname = pg_catalog.current_database()
    )
)
