-- Records refreshes that are about to commit, and their times in the catalog.
-- Arrays of equal length: %(ids)s, %(data_timestamps)s, %(started_at)s, %(actions)s, %(reasons)s, %(inserted)s, %(deleted)s, %(delta_rows)s,
-- %(initiated_by)s, %(timings)s jsonb texts, %(ms)s: what each took by itself.
WITH given AS (
    SELECT *
    FROM unnest(
        %(ids)s::int8[], %(data_timestamps)s::timestamptz[], %(started_at)s::timestamptz[], %(actions)s::text[], %(reasons)s::text[],
        %(inserted)s::int8[], %(deleted)s::int8[], %(delta_rows)s::int8[], %(initiated_by)s::text[], %(timings)s::text[], %(ms)s::float8[]
    ) AS g (pgt_id, data_timestamp, started_at, action, reason, inserted, deleted, delta_rows, initiated_by, timings, ms)
), recorded AS (
    INSERT INTO pgtrickle.pgt_refresh_history (
        pgt_id, data_timestamp, start_time, end_time, action, reason, rows_inserted, rows_deleted, delta_row_count, status,
        initiated_by, timings
    )
    SELECT
        g.pgt_id, g.data_timestamp, g.started_at, clock_timestamp(), g.action, g.reason, g.inserted, g.deleted, g.delta_rows, 'COMPLETED',
        g.initiated_by, g.timings::jsonb
    FROM given AS g
)
UPDATE pgtrickle.pgt_stream_tables AS st
SET last_diff_ms = CASE WHEN g.action = 'DIFFERENTIAL' THEN g.ms ELSE st.last_diff_ms END,
    last_full_ms = CASE WHEN g.action IN ('FULL', 'REINITIALIZE') THEN g.ms ELSE st.last_full_ms END
FROM given AS g
WHERE st.pgt_id = g.pgt_id AND g.action <> 'NO_DATA'
