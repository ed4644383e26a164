-- Records refreshes that are about to commit in the history, and their durations in the catalog. A refresh that started Spark or created a
-- replica (is_cold) does not change the catalog, because its duration does not predict later ones.
-- The parameters are arrays of equal length:
-- %(ids)s, %(data_timestamps)s, %(actions)s, %(inserted)s, %(deleted)s, %(delta_rows)s, %(initiated_by)s, %(timings)s (jsonb texts);
-- %(reason_codes)s, %(reason_params)s (jsonb texts), %(reasons)s: why this action was chosen;
-- %(wave_ms)s: the time since the wave began; %(ms)s: the duration of this refresh; %(source_ms)s: the part of it in statements of the database;
-- %(share_ms)s: the duration without work that was done for other tables at the same time;
-- %(engines)s: which engine evaluated the query; %(engine_codes)s, %(engine_params)s (jsonb texts): why; %(cold)s: see above;
-- %(operator_rows)s (jsonb texts): the numbers of rows between the operators of a differential refresh, or NULL.
WITH given AS (
    SELECT *
    FROM unnest(
        %(ids)s::int8[], %(data_timestamps)s::timestamptz[], %(wave_ms)s::float8[], %(actions)s::text[],
        %(reason_codes)s::text[], %(reason_params)s::text[], %(reasons)s::text[],
        %(inserted)s::int8[], %(deleted)s::int8[], %(delta_rows)s::int8[], %(initiated_by)s::text[], %(timings)s::text[], %(ms)s::float8[],
        %(engines)s::text[], %(engine_codes)s::text[],
        %(engine_params)s::text[], %(source_ms)s::float8[], %(cold)s::bool[], %(share_ms)s::float8[], %(operator_rows)s::text[]
    ) AS g (pgt_id, data_timestamp, wave_ms, action, reason_code, reason_params, reason, inserted, deleted, delta_rows, initiated_by, timings, ms, engine,
        engine_code, engine_params, source_ms, is_cold, share_ms, operator_rows)
), moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), recorded AS (
    INSERT INTO pgtrickle.pgt_refresh_history (
        pgt_id, data_timestamp, start_time, end_time, action, reason_code, reason_params, reason, rows_inserted, rows_deleted,
        delta_row_count, status, initiated_by, timings, engine,
        engine_reason_code, engine_reason_params, source_ms, is_cold, wave_start_time, share_ms, operator_rows
    )
    SELECT
        g.pgt_id, g.data_timestamp, m.now - least(g.ms, g.wave_ms) * interval '1 millisecond', m.now, g.action, g.reason_code, g.reason_params::jsonb, g.reason,
        g.inserted, g.deleted, g.delta_rows, 'COMPLETED', g.initiated_by, g.timings::jsonb, g.engine,
        g.engine_code, g.engine_params::jsonb, g.source_ms, g.is_cold, m.now - g.wave_ms * interval '1 millisecond', g.share_ms,
        g.operator_rows::jsonb
    FROM given AS g
    CROSS JOIN moment AS m
)
UPDATE pgtrickle.pgt_stream_tables AS st
SET last_diff_ms = CASE WHEN g.action = 'DIFFERENTIAL' AND NOT g.is_cold THEN g.ms ELSE st.last_diff_ms END,
    last_full_ms = CASE WHEN g.action IN ('FULL', 'REINITIALIZE') AND NOT g.is_cold THEN g.ms ELSE st.last_full_ms END
FROM given AS g
WHERE st.pgt_id = g.pgt_id AND g.action <> 'NO_DATA'
