-- Records a refresh that is about to commit, and its time in the catalog.
-- %(pgt_id)s, %(data_timestamp)s, %(started_at)s, %(action)s, %(reason)s, %(inserted)s, %(deleted)s, %(delta_rows)s, %(initiated_by)s,
-- %(timings)s jsonb text, %(ms)s: what it took by itself.
WITH done AS (
    INSERT INTO pgtrickle.pgt_refresh_history (
        pgt_id, data_timestamp, start_time, end_time, action, reason, rows_inserted, rows_deleted, delta_row_count, status,
        initiated_by, timings
    )
    VALUES (
        %(pgt_id)s, %(data_timestamp)s, %(started_at)s, clock_timestamp(), %(action)s, %(reason)s, %(inserted)s, %(deleted)s,
        %(delta_rows)s, 'COMPLETED', %(initiated_by)s, %(timings)s::jsonb
    )
    RETURNING pgt_id, action
)
UPDATE pgtrickle.pgt_stream_tables AS st
SET last_diff_ms = CASE WHEN d.action = 'DIFFERENTIAL' THEN %(ms)s ELSE st.last_diff_ms END,
    last_full_ms = CASE WHEN d.action IN ('FULL', 'REINITIALIZE') THEN %(ms)s ELSE st.last_full_ms END
FROM done AS d
WHERE st.pgt_id = d.pgt_id AND d.action <> 'NO_DATA'
