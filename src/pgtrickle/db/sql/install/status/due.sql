-- How far behind its schedule a stream table is. Times of cron are UTC, as in the scheduler.

CREATE OR REPLACE FUNCTION pgtrickle._schedule_seconds(schedule text) RETURNS float8
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN schedule ~ '^\d+$' THEN schedule::float8
        WHEN schedule ~ '^(\d+\s*[a-z]+\s*)+$' THEN (
            SELECT sum(m[1]::float8 * CASE WHEN m[2] = 'ms' THEN 0.001
                                           ELSE (array[1, 60, 3600, 86400, 604800])[position(left(m[2], 1) IN 'smhdw')] END)
            FROM regexp_matches(schedule, '(\d+)\s*([a-z]+)', 'g') AS m)
    END
$$;
COMMENT ON FUNCTION pgtrickle._schedule_seconds(text) IS 'Internal. The seconds of a duration in its stored form; NULL for cron and calculated.';

CREATE OR REPLACE FUNCTION pgtrickle._cron_values(field text, lowest int, highest int, names text[] DEFAULT '{}') RETURNS int[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    field := lower(field);
    FOR i IN 1 .. cardinality(names) LOOP
        field := regexp_replace(field, '\m' || names[i] || '\M', (lowest + i - 1)::text, 'g');
    END LOOP;
    RETURN (
        SELECT array_agg(DISTINCT v ORDER BY v)
        FROM unnest(string_to_array(field, ',')) AS item
        CROSS JOIN regexp_match(item, '^(?:(\*)|(\d+)(?:-(\d+))?)(?:/(\d+))?$') AS m
        -- one value with a step goes on to the end
        CROSS JOIN generate_series(coalesce(m[2]::int, lowest),
                                   CASE WHEN m[1] IS NOT NULL OR (m[4] IS NOT NULL AND coalesce(m[3], m[2])::int = m[2]::int) THEN highest
                                        ELSE coalesce(m[3], m[2])::int END,
                                   coalesce(m[4]::int, 1)) AS v);
END
$$;
COMMENT ON FUNCTION pgtrickle._cron_values(text, int, int, text[]) IS 'Internal. The values that one field of a cron expression stands for.';

CREATE OR REPLACE FUNCTION pgtrickle._cron_latest(schedule text, until timestamptz) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f text[] := regexp_split_to_array(CASE schedule
        WHEN '@yearly' THEN '0 0 1 1 *' WHEN '@annually' THEN '0 0 1 1 *' WHEN '@monthly' THEN '0 0 1 * *' WHEN '@weekly' THEN '0 0 * * 0'
        WHEN '@daily' THEN '0 0 * * *' WHEN '@midnight' THEN '0 0 * * *' WHEN '@hourly' THEN '0 * * * *' ELSE schedule END, '\s+');
    at CONSTANT timestamp := until AT TIME ZONE 'UTC';
    seconds int[];
    minutes int[];
    hours int[];
    days int[];
    months int[];
    weekdays int[];
    narrow bool;
    day date;
    by_month bool;
    by_week bool;
    found timestamp;
BEGIN
    IF cardinality(f) = 5 THEN
        f := '0'::text || f;
    END IF;
    seconds := pgtrickle._cron_values(f[1], 0, 59);
    minutes := pgtrickle._cron_values(f[2], 0, 59);
    hours := pgtrickle._cron_values(f[3], 0, 23);
    days := pgtrickle._cron_values(f[4], 1, 31);
    months := pgtrickle._cron_values(f[5], 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
    weekdays := pgtrickle._cron_values(f[6], 0, 7, '{sun,mon,tue,wed,thu,fri,sat}');
    -- day of month and day of week: either will do, unless one of them begins with a star
    narrow := f[4] LIKE '*%' OR f[6] LIKE '*%';
    FOR i IN 0 .. 8 * 366 LOOP
        day := at::date - i;
        CONTINUE WHEN extract(month FROM day) <> ALL (months);
        by_month := extract(day FROM day) = ANY (days);
        by_week := extract(isodow FROM day) = ANY (weekdays) OR extract(dow FROM day) = ANY (weekdays);
        CONTINUE WHEN NOT CASE WHEN narrow THEN by_month AND by_week ELSE by_month OR by_week END;
        found := (SELECT max(t)
                  -- the last two hours: the minutes of the first may be yet to come
                  FROM (SELECT h FROM unnest(hours) AS h WHERE day + make_time(h, 0, 0) <= at ORDER BY h DESC LIMIT 2) AS h
                  CROSS JOIN unnest(minutes) AS m
                  CROSS JOIN unnest(seconds) AS s
                  CROSS JOIN LATERAL (SELECT day + make_time(h.h, m, s)) AS c(t)
                  WHERE c.t <= at);
        EXIT WHEN found IS NOT NULL;
    END LOOP;
    RETURN found AT TIME ZONE 'UTC';
END
$$;
COMMENT ON FUNCTION pgtrickle._cron_latest(text, timestamptz) IS
'Internal. The last time of a cron schedule that is not later than the one given; NULL when there was none in eight years.';

CREATE OR REPLACE FUNCTION pgtrickle._fresh_from(until timestamptz) RETURNS TABLE (pgt_id bigint, instant timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE setting AS MATERIALIZED (
        SELECT pgtrickle._is_on('tiered_scheduling') AS tiered
    ), schedule AS MATERIALIZED (
        -- many stream tables, few schedules
        SELECT s.schedule, s.seconds, CASE WHEN s.seconds IS NULL AND s.schedule <> 'calculated' THEN pgtrickle._cron_latest(s.schedule, until) END AS latest
        FROM (SELECT x.schedule, pgtrickle._schedule_seconds(x.schedule) AS seconds
              FROM (SELECT DISTINCT st.schedule FROM pgtrickle.pgt_stream_tables AS st) AS x) AS s
    ), own AS (
        SELECT st.pgt_id, st.pgt_relid,
               CASE WHEN st.refresh_tier = 'frozen' AND (setting.tiered OR st.tier_pinned) THEN '-infinity'
                    WHEN st.refresh_mode = 'IMMEDIATE' THEN until
                    WHEN st.schedule = 'calculated' THEN NULL
                    WHEN d.seconds IS NOT NULL THEN until - make_interval(secs => d.seconds * CASE WHEN setting.tiered THEN t.multiplier ELSE 1 END)
                    ELSE coalesce(d.latest, '-infinity') END AS instant
        FROM pgtrickle.pgt_stream_tables AS st
        CROSS JOIN setting
        JOIN schedule AS d ON d.schedule = st.schedule
        LEFT JOIN (VALUES ('hot', 1), ('warm', 2), ('cold', 10)) AS t(tier, multiplier) ON t.tier = st.refresh_tier
    ), follows AS (
        -- calculated: as fresh as the most demanding of those that read it
        SELECT o.pgt_id, o.pgt_id AS consumer, o.pgt_relid, o.instant FROM own AS o
        UNION
        SELECT f.pgt_id, o.pgt_id, o.pgt_relid, o.instant
        FROM follows AS f
        JOIN pgtrickle.pgt_dependencies AS d ON d.source_relid = f.pgt_relid
        JOIN own AS o ON o.pgt_id = d.pgt_id
        WHERE f.instant IS NULL
    )
    SELECT f.pgt_id, coalesce(max(f.instant), until) FROM follows AS f GROUP BY f.pgt_id
$$;
COMMENT ON FUNCTION pgtrickle._fresh_from(timestamptz) IS
'Internal. Per stream table the instant that its content has to show at least, at the time given: by its schedule and tier, or by those of its readers.';

-- SECURITY DEFINER because buffers are private; it shows whether there is a row, never one.
CREATE OR REPLACE FUNCTION pgtrickle._pending() RETURNS TABLE (pgt_id bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source record;
    origin CONSTANT text := pgtrickle._origin();
BEGIN
    FOR source IN
        SELECT s.source_relid, b.oid AS buffer
        FROM pgtrickle.pgt_sources AS s
        JOIN pg_class AS b ON b.relnamespace = 'pgtrickle_changes'::regnamespace AND b.relname = 'changes_' || s.source_relid
        WHERE pg_relation_size(b.oid) > 0
    LOOP
        RETURN QUERY EXECUTE format($sql$
            SELECT d.pgt_id
            FROM pgtrickle.pgt_dependencies AS d
            JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = d.pgt_id
            CROSS JOIN LATERAL (SELECT (st.frontier -> $2 ->> 'snapshot')::pg_snapshot) AS cut(s)
            WHERE d.source_relid = $1
              AND EXISTS (SELECT FROM %s AS b
                          WHERE cut.s IS NULL OR (b.xid >= pg_snapshot_xmin(cut.s) AND NOT pg_visible_in_snapshot(b.xid, cut.s)))
            $sql$, source.buffer::regclass)
        USING source.source_relid, origin;
    END LOOP;
    -- changes of these are not captured: whether there are any is known by looking, which is what their schedule is for
    RETURN QUERY
    SELECT d.pgt_id
    FROM pgtrickle.pgt_dependencies AS d
    JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = d.pgt_id
    WHERE d.source_type IN ('MATVIEW', 'FOREIGN_TABLE', 'REMOTE') AND st.schedule <> 'calculated';
END
$$;
COMMENT ON FUNCTION pgtrickle._pending() IS
'Internal. Stream tables with changes that their content does not show, some of them more than once; those that read what cannot be captured always '
'count, if they have a schedule.';

CREATE OR REPLACE FUNCTION pgtrickle._behind()
RETURNS TABLE (pgt_id bigint, pending bool, fresh_from timestamptz, stale bool, behind_seconds float8)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH run AS MATERIALIZED (SELECT r.ticking AND r.enabled AS working FROM pgtrickle._runtime() AS r),
    clock AS MATERIALIZED (
        SELECT clock_timestamp() AS now,
               clock_timestamp() - make_interval(secs => greatest(10, 5 * pgtrickle._setting('scheduler_interval_ms')::int / 1000.0)) AS grace
    ),
    waiting AS (
        SELECT u.id, min(j.enqueued_at) AS since
        FROM pgtrickle.pgt_scheduler_jobs AS j
        CROSS JOIN unnest(j.members) AS u(id)
        WHERE j.finished_at IS NULL
        GROUP BY u.id
    ), seen AS (
        SELECT st.pgt_id, st.data_timestamp, clock.now, clock.grace, f.instant,
               st.pgt_id IN (SELECT p.pgt_id FROM pgtrickle._pending() AS p) AS pending,
               -- Change times are not recorded. A running scheduler queues the table at its next tick, so it is late when
               -- no scheduler runs, when the table is stopped, or when it has been queued for a long time.
               NOT run.working OR st.status IN ('ERROR', 'SUSPENDED') OR coalesce(w.since < clock.grace, false) AS late,
               st.status IN ('ACTIVE', 'INITIALIZING') AND st.refresh_requested_at > coalesce(st.refresh_done_at, '-infinity')
                   AND st.refresh_requested_at < clock.now - interval '1 minute' AS unanswered
        FROM pgtrickle.pgt_stream_tables AS st
        CROSS JOIN run
        CROSS JOIN clock
        JOIN pgtrickle._fresh_from(clock.grace) AS f ON f.pgt_id = st.pgt_id
        LEFT JOIN waiting AS w ON w.id = st.pgt_id
    ), judged AS (
        SELECT s.*, s.pending AND s.late AND s.data_timestamp < s.instant AS overdue FROM seen AS s
    )
    SELECT j.pgt_id, j.pending, j.instant, coalesce(j.overdue, false) OR coalesce(j.unanswered, false),
           CASE WHEN j.data_timestamp IS NULL THEN NULL
                WHEN NOT j.pending THEN 0
                -- not overdue: no further than the schedule allows
                ELSE extract(epoch FROM j.now - CASE WHEN j.overdue THEN j.data_timestamp ELSE greatest(j.data_timestamp, j.instant) END)::float8 END
    FROM judged AS j
$$;
COMMENT ON FUNCTION pgtrickle._behind() IS
'Internal. Per stream table: whether changes are pending; the instant it has to show by its schedule; stale: changes are pending, the content is older '
'than that, and it is not about to be refreshed, or a request has no answer for a minute; seconds behind its sources, 0 when nothing is pending, an '
'upper bound otherwise.';
