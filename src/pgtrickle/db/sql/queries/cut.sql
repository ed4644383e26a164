-- The cut of this transaction and which database of which cluster it belongs to. Run first in a REPEATABLE READ transaction.
-- Returns: snapshot, system identifier, database oid, time, TimeZone of the session.
SELECT
    pg_current_snapshot()::text,
    (SELECT system_identifier::text FROM pg_control_system()),
    (SELECT oid::int8 FROM pg_database WHERE datname = current_database()),
    clock_timestamp(),
    current_setting('TimeZone')
