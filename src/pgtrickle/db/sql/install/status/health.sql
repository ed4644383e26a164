-- Health: from one row for a monitor to a list of findings.

CREATE OR REPLACE FUNCTION pgtrickle.health_summary()
RETURNS TABLE (total_stream_tables int, active_count int, error_count int, suspended_count int, stale_count int, reinit_pending int,
               max_staleness_seconds float8, scheduler_status text, cache_hit_rate float8)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(st.pgt_id)::int,
           (count(*) FILTER (WHERE st.status = 'ACTIVE'))::int,
           (count(*) FILTER (WHERE st.status = 'ERROR'))::int,
           (count(*) FILTER (WHERE st.status = 'SUSPENDED'))::int,
           (count(st.pgt_id) FILTER (WHERE b.stale))::int,
           (count(*) FILTER (WHERE st.needs_reinit))::int,
           max(b.behind_seconds),
           CASE WHEN pg_is_in_recovery() THEN 'STANDBY' WHEN NOT r.enabled THEN 'DISABLED' WHEN r.running THEN 'ACTIVE' ELSE 'STOPPED' END,
           (SELECT c.hit_rate FROM pgtrickle.cache_stats() AS c)
    FROM pgtrickle._runtime() AS r
    LEFT JOIN pgtrickle._behind() AS b ON true
    LEFT JOIN pgtrickle.pgt_stream_tables AS st
        ON st.pgt_id = b.pgt_id AND NOT EXISTS (SELECT FROM pgtrickle.pgt_mirrors AS m WHERE m.pgt_id = st.pgt_id)
    GROUP BY r.running, r.enabled
$$;
COMMENT ON FUNCTION pgtrickle.health_summary() IS
'One row for the whole database. Mirrors of tables of other databases are not counted; their lag is part of max_staleness_seconds. '
'stale_count: stream tables with pending changes that are older than their schedule permits and whose refresh is not '
'imminent, or whose refresh was requested more than a minute ago. max_staleness_seconds: upper bound of the largest lag behind the sources; 0 when '
'nothing is pending. scheduler_status: ACTIVE, STOPPED (no scheduler is connected), DISABLED (pg_trickle.enabled is off), STANDBY. cache_hit_rate: of '
'compiled templates.';

CREATE OR REPLACE FUNCTION pgtrickle.check_cdc_health()
RETURNS TABLE (source_relid oid, source_table text, cdc_mode text, slot_name text, lag_bytes bigint, confirmed_lsn pg_lsn, alert text,
               pending_rows bigint, buffer_bytes bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH l AS MATERIALIZED (SELECT nullif(pgtrickle._setting('max_buffer_rows')::int, 0) AS max_rows)
    SELECT s.source_relid, coalesce(quote_ident(n.nspname) || '.' || quote_ident(c.relname), s.source_relid::text), 'trigger', NULL::text,
        NULL::bigint, NULL::pg_lsn,
           CASE WHEN c.oid IS NULL THEN 'the source was dropped'
                WHEN NOT EXISTS (SELECT FROM pg_class AS b WHERE b.relnamespace = 'pgtrickle_changes'::regnamespace
                    AND b.relname = 'changes_' || s.source_relid)
                    THEN 'the change buffer does not exist'
                WHEN t.missing > 0 THEN format('%s of %s capture triggers are missing', t.missing, t.wanted)
                WHEN t.disabled > 0 THEN format('%s of %s capture triggers are not enabled as they should be', t.disabled, t.wanted)
                WHEN z.to_apply > l.max_rows THEN format('%s changes are pending, more than max_buffer_rows (%s): the next refresh is FULL',
                    z.to_apply, l.max_rows)
           END,
           z.pending, z.bytes
    FROM pgtrickle.pgt_sources AS s
    CROSS JOIN l
    LEFT JOIN pg_class AS c ON c.oid = s.source_relid
    LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN (SELECT i.source_oid, count(*) AS wanted, count(*) FILTER (WHERE NOT i.present) AS missing,
                      count(*) FILTER (WHERE i.present AND NOT i.enabled) AS disabled
               FROM pgtrickle.trigger_inventory() AS i GROUP BY i.source_oid) AS t ON t.source_oid = s.source_relid
    LEFT JOIN (SELECT b.source_relid AS source_oid, max(b.pending_rows) AS pending, max(b.pending_rows) FILTER (WHERE b.subscriber IS NULL) AS to_apply,
                      max(b.buffer_bytes) AS bytes
               FROM pgtrickle._buffer_sizes() AS b GROUP BY b.source_relid) AS z ON z.source_oid = s.source_relid
    ORDER BY 2
$$;
COMMENT ON FUNCTION pgtrickle.check_cdc_health() IS
'Per captured source: problem of its capture (alert, NULL if none), changes that the slowest reader has not read, size of the buffer. Changes are '
'captured by triggers, so slot_name, lag_bytes and confirmed_lsn are NULL.';

CREATE OR REPLACE FUNCTION pgtrickle.health_check() RETURNS TABLE (check_name text, severity text, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH run AS (SELECT * FROM pgtrickle._runtime()),
    tables AS (
        SELECT st.pgt_id, format('%I.%I', st.pgt_schema, st.pgt_name) AS name, st.status, st.needs_reinit, st.consecutive_errors, b.stale,
               NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = st.pgt_relid) AS lost
        FROM pgtrickle.pgt_stream_tables AS st
        JOIN pgtrickle._behind() AS b ON b.pgt_id = st.pgt_id
    ), found(position, check_name, worst, bad, fine) AS (
        SELECT 1, 'scheduler', CASE WHEN NOT run.enabled THEN 'WARN' ELSE 'ERROR' END,
               CASE WHEN pg_is_in_recovery() THEN NULL
                    WHEN NOT run.enabled THEN 'pg_trickle.enabled is off: nothing is refreshed, capture continues'
                    WHEN NOT run.running THEN 'no scheduler is connected to this database (hint: start pgtrickle run)'
                    WHEN NOT run.ticking THEN 'the scheduler is connected but inactive' END,
               CASE WHEN pg_is_in_recovery() THEN 'this server is a standby: stream tables are refreshed on the primary'
                    ELSE 'the scheduler is connected' END
        FROM run
        UNION ALL
        SELECT 2, 'error_tables', 'ERROR', string_agg(t.name, ', ' ORDER BY t.name), 'no stream table is in status ERROR'
        FROM tables AS t WHERE t.status = 'ERROR'
        UNION ALL
        SELECT 3, 'suspended_tables', 'WARN', string_agg(t.name, ', ' ORDER BY t.name), 'no stream table is suspended'
        FROM tables AS t WHERE t.status = 'SUSPENDED'
        UNION ALL
        SELECT 4, 'stale_tables', 'WARN', string_agg(t.name, ', ' ORDER BY t.name), 'no stream table is behind its schedule'
        FROM tables AS t WHERE t.stale
        UNION ALL
        SELECT 5, 'needs_reinit', 'WARN', string_agg(t.name, ', ' ORDER BY t.name), 'no stream table waits for a new load'
        FROM tables AS t WHERE t.needs_reinit
        UNION ALL
        SELECT 6, 'consecutive_errors', 'WARN', string_agg(format('%s (%s)', t.name, t.consecutive_errors), ', ' ORDER BY t.name),
            'the last refresh of each stream table succeeded'
        FROM tables AS t WHERE t.consecutive_errors > 0
        UNION ALL
        SELECT 7, 'storage', 'ERROR', string_agg(t.name, ', ' ORDER BY t.name), 'every stream table has its storage table'
        FROM tables AS t WHERE t.lost
        UNION ALL
        SELECT 8, 'capture', 'WARN', string_agg(format('%s: %s', c.source_table, c.alert), '; ' ORDER BY c.source_table), 'changes of all sources are captured'
        FROM pgtrickle.check_cdc_health() AS c WHERE c.alert IS NOT NULL
        UNION ALL
        SELECT 9, 'worker_pool', 'WARN',
               CASE WHEN p.active_workers >= p.max_workers AND q.waiting > 0
                    THEN format('all %s workers are busy and %s units of this database wait: raise max_dynamic_refresh_workers', p.max_workers, q.waiting) END,
               format('%s of %s workers are busy, %s units of this database wait', p.active_workers, p.max_workers, q.waiting)
        FROM pgtrickle.worker_pool_status() AS p
        CROSS JOIN (SELECT count(*) FROM pgtrickle.pgt_scheduler_jobs AS j WHERE j.finished_at IS NULL AND j.status = 'QUEUED') AS q(waiting)
        UNION ALL
        SELECT 10, 'readers', 'WARN',
               string_agg(format('%s has not read %s for %s: %s changes are kept for it, the buffer has %s', coalesce(e.reader, 'another database'),
                                 e.source_table, justify_interval(date_trunc('hour', clock_timestamp() - e.last_seen)), e.pending_rows,
                                 pg_size_pretty(e.buffer_bytes)), '; ' ORDER BY e.reader, e.source_table)
                   || ' (hint: if it no longer exists: pgtrickle.detach_reader)',
               'no reader in another database blocks trimming'
        FROM pgtrickle.readers() AS e WHERE e.late
        UNION ALL
        SELECT 11, 'origins', 'WARN', string_agg(format('%s: %s', o.origin, o.problem), '; ' ORDER BY o.origin), 'every origin of a mirror can be polled'
        FROM run
        CROSS JOIN LATERAL jsonb_to_recordset(run.state -> 'origins') AS o(origin text, problem text)
        UNION ALL
        SELECT 12, 'broker', 'WARN', run.state ->> 'broker_problem', 'the refresh broker answers, or is not used'
        FROM run
        UNION ALL
        SELECT 13, 'subscribers', 'WARN',
               string_agg(format('%s%s is %s behind', s.subscriber, ' of ' || s.stream_table, pg_size_pretty(s.lag_bytes)), '; '
                   ORDER BY s.stream_table, s.subscriber)
                   || ' (hint: if it no longer exists: pgtrickle.drop_subscriber, pg_drop_replication_slot)',
               'no subscriber lags by more than publication_lag_warn_lsn, or it is 0'
        FROM run
        CROSS JOIN LATERAL (SELECT coalesce((run.state ->> 'lag_warn_bytes')::bigint, pgtrickle._setting('publication_lag_warn_lsn')::bigint)) AS l(bytes)
        JOIN pgtrickle.subscribers() AS s ON l.bytes > 0 AND s.lag_bytes > l.bytes
    )
    SELECT f.check_name, CASE WHEN f.bad IS NULL THEN 'OK' ELSE f.worst END, coalesce(f.bad, f.fine) FROM found AS f ORDER BY f.position
$$;
COMMENT ON FUNCTION pgtrickle.health_check() IS 'Health checks: a row per check, with severity OK, WARN or ERROR and its finding.';

CREATE OR REPLACE VIEW pgtrickle.quick_health AS
SELECT s.total_stream_tables, s.error_count + s.suspended_count AS error_tables, s.stale_count AS stale_tables,
       s.scheduler_status = 'ACTIVE' AS scheduler_running,
       CASE WHEN s.total_stream_tables = 0 THEN 'EMPTY'
            WHEN s.error_count + s.suspended_count > 0 OR s.scheduler_status = 'STOPPED' THEN 'CRITICAL'
            WHEN EXISTS (SELECT FROM pgtrickle.pgt_mirrors AS m JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = m.pgt_id
                         WHERE st.status IN ('ERROR', 'SUSPENDED')) THEN 'CRITICAL'
            WHEN s.stale_count + s.reinit_pending > 0 OR s.scheduler_status = 'DISABLED' THEN 'WARNING'
            ELSE 'OK' END AS status
FROM pgtrickle.health_summary() AS s;
COMMENT ON VIEW pgtrickle.quick_health IS
'One row, one word: EMPTY, OK, WARNING (a stream table is stale or will be loaded again, or the scheduler is disabled) or CRITICAL (a stream table or '
'mirror is stopped, or no scheduler is connected).';

CREATE OR REPLACE VIEW pgtrickle.stream_tables_info AS
SELECT st.pgt_id, st.pgt_schema, st.pgt_name, st.pgt_relid, st.status, st.refresh_mode, st.effective_refresh_mode, st.mode_reason, st.schedule,
       st.refresh_tier, st.is_populated, st.needs_reinit, st.data_timestamp, st.last_refresh_at, st.consecutive_errors, st.last_full_ms,
       st.last_diff_ms, st.defining_query, st.original_query, st.created_by, st.created_at, st.updated_at,
       pg_catalog.clock_timestamp() - st.data_timestamp AS staleness, b.stale, b.pending AS changes_pending, b.behind_seconds, m.last_error_message
FROM pgtrickle.pgt_stream_tables AS st
LEFT JOIN pgtrickle._behind() AS b ON b.pgt_id = st.pgt_id
LEFT JOIN pgtrickle._messages AS m ON m.pgt_id = st.pgt_id;
COMMENT ON VIEW pgtrickle.stream_tables_info IS
'The catalog of stream tables with derived columns. staleness: age of the snapshot of the content; stale: changes are pending and it is older than its '
'schedule permits; behind_seconds: upper bound of the lag behind its sources, 0 if nothing is pending; last_error_message: for roles that may read the table.';
