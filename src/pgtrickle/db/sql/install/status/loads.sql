-- Progress of loads. A session that writes a load says so in its application_name (refresh/load_progress.py):
-- pgtrickle/writer#<pgt_id>:<phase>:<estimated rows>:<width of a row>:<bytes of the table, or rows copied, before; or the number of a stage>
-- The sessions of executors, which fill the tables of a stage, have its number in theirs: pgtrickle/stage#<hexadecimal>.

-- SECURITY DEFINER to see the start of the transactions of the service role's sessions, and what they copy.
CREATE OR REPLACE FUNCTION pgtrickle._load_progress(me text DEFAULT pgtrickle._me())
RETURNS TABLE (name text, phase text, rows_done bigint, rows_estimated bigint, rows_per_second float8, remaining_seconds float8,
               elapsed_seconds float8, started_at timestamptz, pid int, pgt_id bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    copied jsonb := '{}';
    now CONSTANT timestamptz := clock_timestamp();
BEGIN
    IF to_regclass('pg_catalog.pg_stat_progress_copy') IS NOT NULL THEN  -- from 14 on
        EXECUTE 'SELECT coalesce(jsonb_object_agg(c.pid, c.tuples_processed), ''{}'') FROM pg_stat_progress_copy AS c' INTO copied;
    END IF;
    RETURN QUERY
    WITH loading AS (
        SELECT a.pid, coalesce(a.xact_start, a.state_change) AS xact_start, m[1]::bigint AS id, m[2] AS step, nullif(m[3]::bigint, 0) AS expected,
               (m[4]::bigint + 30) / 8 * 8 + 28 AS row_bytes, m[5]::bigint AS before
        FROM pg_stat_activity AS a
        CROSS JOIN LATERAL regexp_match(a.application_name, '^pgtrickle/writer#(\d{1,18}):([a-z]):(\d{1,13}):(\d{1,13}):(\d{1,18})$') AS m
        WHERE a.datname = current_database() AND m IS NOT NULL AND pg_has_role(a.usesysid, current_user, 'MEMBER')
    ), found AS (
        SELECT st.pgt_id, format('%I.%I', st.pgt_schema, st.pgt_name) AS label, l.pid, l.xact_start, l.step,
               greatest(extract(epoch FROM now - l.xact_start)::float8, 0) AS elapsed,
               st.last_full_ms / 1000 AS last_seconds,
               EXISTS (SELECT FROM pg_stat_progress_create_index AS i WHERE i.pid = l.pid) AS is_indexing,
               CASE WHEN l.step = 'r' THEN l.before + coalesce((copied ->> l.pid::text)::bigint, 0)
                    -- the size of a table that is locked completely could be read only after the load
                    WHEN l.step = 'w' AND NOT EXISTS (SELECT FROM pg_locks AS k
                                                      WHERE k.relation = st.pgt_relid AND k.mode = 'AccessExclusiveLock' AND k.granted)
                        THEN greatest(pgtrickle._stored_size(st.pgt_relid) - l.before, 0) / l.row_bytes
                    WHEN l.step = 's' THEN staged.bytes / l.row_bytes + staged.copying END AS done,
               CASE WHEN l.step <> 'w' OR l.before = 0 THEN l.expected END AS expected,  -- of a difference nobody knows it
               coalesce(has_table_privilege(pgtrickle._caller(me), st.pgt_relid, 'SELECT'), false)
                   OR pg_has_role(pgtrickle._caller(me), current_user, 'USAGE') AS is_shown
        FROM loading AS l
        JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = l.id
        LEFT JOIN LATERAL (
            SELECT (SELECT coalesce(sum(pg_relation_size(c.oid)), 0)::bigint
                    FROM pg_class AS c
                    WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace
                      AND starts_with(c.relname, format('stage_%s_%s', l.id, lpad(to_hex(l.before), 8, '0')))) AS bytes,
                   (SELECT coalesce(sum((copied ->> a.pid::text)::bigint), 0)::bigint
                    FROM pg_stat_activity AS a
                    WHERE a.datname = current_database() AND a.application_name = 'pgtrickle/stage#' || lpad(to_hex(l.before), 8, '0')) AS copying
        ) AS staged ON l.step = 's'
    )
    SELECT f.label, CASE WHEN f.is_indexing THEN 'indexing' WHEN f.step = 'r' THEN 'copying' WHEN f.done > 0 THEN 'writing' ELSE 'computing' END,
           CASE WHEN f.is_shown THEN f.done END, CASE WHEN f.is_shown THEN greatest(f.expected, f.done) END,
           CASE WHEN f.is_shown AND f.elapsed > 0 THEN f.done / f.elapsed END,
           CASE WHEN f.is_shown AND f.done > 0 AND f.done < f.expected THEN f.elapsed * (f.expected - f.done) / f.done
                WHEN coalesce(f.done, 0) = 0 AND f.elapsed < f.last_seconds THEN f.last_seconds - f.elapsed END,
           f.elapsed, f.xact_start, f.pid, f.pgt_id
    FROM found AS f
    ORDER BY f.label;
END
$$;
COMMENT ON FUNCTION pgtrickle._load_progress(text) IS 'Internal. What load_progress() shows.';

CREATE OR REPLACE FUNCTION pgtrickle.load_progress()
RETURNS TABLE (name text, phase text, rows_done bigint, rows_estimated bigint, rows_per_second float8, remaining_seconds float8,
               elapsed_seconds float8, started_at timestamptz, pid int, pgt_id bigint)
LANGUAGE sql STABLE AS $$
    SELECT * FROM pgtrickle._load_progress()
$$;
COMMENT ON FUNCTION pgtrickle.load_progress() IS
'Loads and long full refreshes that are running now. phase: computing (no row is written yet), copying (rows of another session), writing, indexing. '
'rows_done: counted by COPY, or estimated from the growth of the table; rows_estimated: by the planner of PostgreSQL, NULL if unknown. Times are those of '
'the present transaction, or of the evaluation on Spark; remaining_seconds while computing: by the duration of the last load. '
'Numbers of rows are shown to roles that may read the stream table, NULL for others.';
