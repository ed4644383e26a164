-- What refreshes did and cost, from the history. Medians, because one slow refresh says little of the others.

CREATE OR REPLACE FUNCTION pgtrickle.refresh_timeline(max_rows int DEFAULT 50)
RETURNS TABLE (start_time timestamptz, stream_table text, action text, status text, rows_inserted bigint, rows_deleted bigint,
               duration_ms float8, error_message text, refresh_id bigint, end_time timestamptz, delta_row_count bigint, initiated_by text, reason text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.start_time, format('%I.%I', st.pgt_schema, st.pgt_name), h.action, h.status, n.rows_inserted, n.rows_deleted,
           (extract(epoch FROM h.end_time - h.start_time) * 1000)::float8, m.error_message, h.refresh_id, h.end_time, n.delta_row_count,
           h.initiated_by, m.reason
    FROM (SELECT x.refresh_id, x.pgt_id, x.start_time, x.end_time, x.action, x.status, x.initiated_by
          FROM pgtrickle.pgt_refresh_history AS x
          ORDER BY x.start_time DESC, x.refresh_id DESC
          LIMIT max_rows) AS h
    JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = h.pgt_id
    LEFT JOIN pgtrickle._refresh_messages AS m ON m.refresh_id = h.refresh_id
    LEFT JOIN pgtrickle._refresh_numbers AS n ON n.refresh_id = h.refresh_id
    ORDER BY h.start_time DESC, h.refresh_id DESC
$$;
COMMENT ON FUNCTION pgtrickle.refresh_timeline(int) IS
'The latest refreshes of all stream tables, newest first. Numbers of rows, reasons and errors are shown to roles that may read the stream table.';

CREATE OR REPLACE FUNCTION pgtrickle.st_refresh_stats()
RETURNS TABLE (pgt_name text, pgt_schema text, status text, refresh_mode text, is_populated bool, total_refreshes bigint,
               successful_refreshes bigint, failed_refreshes bigint, total_rows_inserted bigint, total_rows_deleted bigint,
               avg_duration_ms float8, last_refresh_action text, last_refresh_status text, last_refresh_at timestamptz, staleness_secs float8,
               stale bool, median_duration_ms float8, max_duration_ms float8, pgt_id bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT st.pgt_name::text, st.pgt_schema::text, st.status, st.refresh_mode, st.is_populated, coalesce(h.total, 0), coalesce(h.completed, 0),
           coalesce(h.failed, 0), CASE WHEN v.yes THEN coalesce(r.inserted, 0) END, CASE WHEN v.yes THEN coalesce(r.deleted, 0) END, h.average,
               l.action, l.status, st.last_refresh_at,
           extract(epoch FROM clock_timestamp() - st.data_timestamp)::float8, b.stale, h.median, h.longest, st.pgt_id
    FROM pgtrickle.pgt_stream_tables AS st
    JOIN pgtrickle._behind() AS b ON b.pgt_id = st.pgt_id
    CROSS JOIN LATERAL (SELECT pgtrickle._may_read(st.pgt_relid, pgtrickle._author(st.created_by, st.created_key))) AS v(yes)
    LEFT JOIN (
        SELECT x.pgt_id, count(*) AS total, count(*) FILTER (WHERE x.status = 'COMPLETED') AS completed,
               count(*) FILTER (WHERE x.status = 'FAILED') AS failed,
               avg(x.ms) AS average, percentile_cont(0.5) WITHIN GROUP (ORDER BY x.ms) AS median, max(x.ms) AS longest
        FROM (SELECT y.pgt_id, y.status,
                     CASE WHEN y.status = 'COMPLETED' THEN (extract(epoch FROM y.end_time - y.start_time) * 1000)::float8 END AS ms
              FROM pgtrickle.pgt_refresh_history AS y) AS x
        GROUP BY x.pgt_id
    ) AS h ON h.pgt_id = st.pgt_id
    LEFT JOIN (
        SELECT n.pgt_id, sum(n.rows_inserted)::bigint AS inserted, sum(n.rows_deleted)::bigint AS deleted
        FROM pgtrickle._refresh_numbers AS n
        GROUP BY n.pgt_id
    ) AS r ON r.pgt_id = st.pgt_id
    LEFT JOIN LATERAL (SELECT y.action, y.status FROM pgtrickle.pgt_refresh_history AS y
                       WHERE y.pgt_id = st.pgt_id ORDER BY y.refresh_id DESC LIMIT 1) AS l ON true
    ORDER BY st.pgt_schema, st.pgt_name
$$;
COMMENT ON FUNCTION pgtrickle.st_refresh_stats() IS
'Per stream table over the kept history: refreshes, rows (for those who may read the stream table), durations of those that completed, the latest one. '
'staleness_secs: age of the snapshot of the content; stale: see health_summary().';

CREATE OR REPLACE VIEW pgtrickle.pg_stat_stream_tables AS
SELECT s.pgt_id, s.pgt_schema, s.pgt_name, s.status, s.refresh_mode, s.is_populated, st.data_timestamp, st.schedule, s.total_refreshes,
       s.successful_refreshes, s.failed_refreshes, s.total_rows_inserted, s.total_rows_deleted, s.avg_duration_ms, s.last_refresh_at, s.stale,
       m.last_error_message AS last_error, s.median_duration_ms, s.last_refresh_action, s.last_refresh_status
FROM pgtrickle.st_refresh_stats() AS s
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = s.pgt_id
LEFT JOIN pgtrickle._messages AS m ON m.pgt_id = s.pgt_id;
COMMENT ON VIEW pgtrickle.pg_stat_stream_tables IS
'Statistics per stream table, in the manner of pg_stat_user_tables: st_refresh_stats() with schedule and last error.';

CREATE OR REPLACE FUNCTION pgtrickle._costs(id bigint DEFAULT NULL)
RETURNS TABLE (pgt_id bigint, total bigint, diffs bigint, fulls bigint, avg_diff float8, avg_full float8, median_diff float8, median_full float8,
               median_changes float8)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT x.pgt_id, count(*), count(*) FILTER (WHERE x.diff), count(*) FILTER (WHERE x.whole),
           avg(x.ms) FILTER (WHERE x.diff), avg(x.ms) FILTER (WHERE x.whole),
           percentile_cont(0.5) WITHIN GROUP (ORDER BY x.ms) FILTER (WHERE x.diff),
           percentile_cont(0.5) WITHIN GROUP (ORDER BY x.ms) FILTER (WHERE x.whole),
           percentile_cont(0.5) WITHIN GROUP (ORDER BY x.delta_row_count) FILTER (WHERE x.diff)
    FROM (SELECT h.pgt_id, n.delta_row_count::float8, h.action = 'DIFFERENTIAL' AS diff, h.action IN ('FULL', 'REINITIALIZE') AS whole,
                 -- alone, without those of the same wave, as AUTO counts
                 coalesce((SELECT sum(t.ms::float8) FROM jsonb_each_text(h.timings) AS t(part, ms)),
                          (extract(epoch FROM h.end_time - h.start_time) * 1000)::float8) AS ms
          FROM pgtrickle.pgt_refresh_history AS h
          LEFT JOIN pgtrickle._refresh_numbers AS n ON n.refresh_id = h.refresh_id
          WHERE h.status = 'COMPLETED' AND (id IS NULL OR h.pgt_id = id)) AS x
    GROUP BY x.pgt_id
$$;
COMMENT ON FUNCTION pgtrickle._costs(bigint) IS
'Internal. Milliseconds that completed differential and full refreshes of one or all stream tables took by themselves, and changes per differential one.';

CREATE OR REPLACE FUNCTION pgtrickle.refresh_efficiency()
RETURNS TABLE (pgt_schema text, pgt_name text, refresh_mode text, total_refreshes bigint, diff_count bigint, full_count bigint,
               avg_diff_ms float8, avg_full_ms float8, diff_speedup float8, last_refresh_at timestamptz, median_diff_ms float8,
               median_full_ms float8, median_changes float8)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT st.pgt_schema::text, st.pgt_name::text, st.effective_refresh_mode, coalesce(c.total, 0), coalesce(c.diffs, 0), coalesce(c.fulls, 0),
           c.avg_diff, c.avg_full, c.median_full / nullif(c.median_diff, 0), st.last_refresh_at, c.median_diff, c.median_full, c.median_changes
    FROM pgtrickle.pgt_stream_tables AS st
    LEFT JOIN pgtrickle._costs() AS c ON c.pgt_id = st.pgt_id
    ORDER BY 1, 2
$$;
COMMENT ON FUNCTION pgtrickle.refresh_efficiency() IS
'What differential refreshes save, per stream table over the kept history: counts; durations without the share of other tables in the same wave, as '
'averages and medians of both kinds; diff_speedup is the ratio of the medians, full by differential.';

CREATE OR REPLACE FUNCTION pgtrickle._recommend(id bigint)
RETURNS TABLE (pgt_schema text, pgt_name text, current_mode text, effective_mode text, recommended_mode text, confidence text, reason text, signals jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH setting AS MATERIALIZED (
        SELECT pgtrickle._setting('prediction_min_samples')::int AS needed, pgtrickle._setting('prediction_ratio')::numeric AS bar
    )
    SELECT st.pgt_schema::text, st.pgt_name::text, st.refresh_mode, st.effective_refresh_mode, v.mode, v.confidence, v.reason,
           jsonb_build_object('diff_samples', n.diffs, 'full_samples', n.fulls, 'median_diff_ms', n.median_diff, 'median_full_ms', n.median_full,
                              'median_changes', n.median_changes, 'ratio', n.ratio, 'prediction_ratio', n.bar, 'min_samples', n.needed)
    FROM pgtrickle.pgt_stream_tables AS st
    CROSS JOIN setting
    LEFT JOIN pgtrickle._costs(id) AS c ON c.pgt_id = st.pgt_id
    CROSS JOIN LATERAL (
        SELECT coalesce(c.diffs, 0), coalesce(c.fulls, 0), round(c.median_diff::numeric, 3), round(c.median_full::numeric, 3), c.median_changes,
               round((c.median_diff / nullif(c.median_full, 0))::numeric, 3), setting.needed, setting.bar
    ) AS n(diffs, fulls, median_diff, median_full, median_changes, ratio, needed, bar)
    CROSS JOIN LATERAL (
        SELECT format('differential: %s, median %s ms; full: %s, median %s ms', n.diffs, coalesce(n.median_diff::text, '-'), n.fulls,
            coalesce(n.median_full::text, '-'))
    ) AS t(numbers)
    CROSS JOIN LATERAL (
        SELECT *
        FROM (VALUES
            (1, st.effective_refresh_mode = 'FULL' AND st.mode_reason IS NOT NULL, 'FULL', 'high',
             'it cannot be maintained from changes: ' || st.mode_reason),
            (2, st.refresh_mode = 'IMMEDIATE', 'IMMEDIATE', 'high', 'IMMEDIATE was asked for; how often it is refreshed is not a matter of cost'),
            (3, n.diffs < n.needed OR n.fulls < 1, st.refresh_mode, 'low',
             format('too few refreshes to tell, %s differential and 1 full are needed (%s)', n.needed, t.numbers)),
            (4, n.ratio > n.bar, 'FULL', CASE WHEN n.fulls < n.needed THEN 'medium' ELSE 'high' END,
             format('a differential refresh takes %s times as long as a full one, more than prediction_ratio %s (%s)', n.ratio, n.bar, t.numbers)),
            (5, n.ratio >= 1, 'AUTO', 'medium', format('both cost about the same: AUTO chooses each time (%s)', t.numbers)),
            (6, true, CASE WHEN st.refresh_mode = 'AUTO' THEN 'AUTO' ELSE 'DIFFERENTIAL' END, CASE WHEN n.fulls < n.needed THEN 'medium' ELSE 'high' END,
             format('a differential refresh takes %s of a full one (%s)', n.ratio, t.numbers))
        ) AS r(position, holds, mode, confidence, reason)
        WHERE r.holds
        ORDER BY r.position
        LIMIT 1
    ) AS v
    WHERE id IS NULL OR st.pgt_id = id
    ORDER BY 1, 2
$$;
COMMENT ON FUNCTION pgtrickle._recommend(bigint) IS 'Internal. recommend_refresh_mode for one stream table or all.';

-- No SET search_path: the name is found along the caller's.
CREATE OR REPLACE FUNCTION pgtrickle.recommend_refresh_mode(name text DEFAULT NULL)
RETURNS TABLE (pgt_schema text, pgt_name text, current_mode text, effective_mode text, recommended_mode text, confidence text, reason text, signals jsonb)
LANGUAGE sql STABLE AS $$
    SELECT * FROM pgtrickle._recommend(CASE WHEN name IS NOT NULL THEN pgtrickle._find(name) END)
$$;
COMMENT ON FUNCTION pgtrickle.recommend_refresh_mode(text) IS
'Recommends a mode for one stream table or all: from the medians of its completed differential and full refreshes, with the numbers in reason and '
'signals. confidence is low until there are prediction_min_samples differential refreshes and a full one, medium until there are as many full ones.';
