-- What the broker has counted for this database. No parameters.
SELECT b.database, b.source, b.pending_rows, b.consumers, b.scans_done, b.scans_saved, b.last_updated_tick AS tick, b.source_oid::int8 AS relid,
       b.db_oid::int8 AS database_oid
FROM pgtrickle.broker_status() AS b
