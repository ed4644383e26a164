-- The cut of this transaction and which database of which cluster it belongs to. Run first in a REPEATABLE READ transaction.
-- Returns: snapshot, system identifier, database oid, time, json {name: value} of the settings that sessions of ours have from their
-- role or database and that can affect the result of a query.
SELECT
    pg_current_snapshot()::text,
    (SELECT system_identifier::text FROM pg_control_system()),
    (SELECT oid::int8 FROM pg_database WHERE datname = current_database()),
    clock_timestamp(),
    json_build_object(
        'TimeZone', current_setting('TimeZone'),
        'timezone_abbreviations', current_setting('timezone_abbreviations'),
        'lc_monetary', current_setting('lc_monetary'),
        'lc_numeric', current_setting('lc_numeric'),
        'lc_time', current_setting('lc_time'),
        'default_text_search_config', current_setting('default_text_search_config'),
        'xmlbinary', current_setting('xmlbinary'),
        'xmloption', current_setting('xmloption')
    )
