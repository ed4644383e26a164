-- Workers, units of work, caches: the state that the control plane publishes (pgt_runtime), or the configuration while it does not run.

CREATE OR REPLACE FUNCTION pgtrickle.options()
RETURNS TABLE (name text, value text, origin text, default_value text, allowed text, scope text, problem text, meaning text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT o.name, coalesce(s.value, o.value), coalesce(s.origin, o.origin), o.default_value, o.allowed, o.scope,
           CASE WHEN s.value IS NULL THEN o.problem END, o.meaning
    FROM pgtrickle._stored_options() AS o
    LEFT JOIN (SELECT e.key AS name, e.value ->> 'value' AS value, e.value ->> 'origin' AS origin
               FROM pgtrickle._runtime() AS r
               CROSS JOIN LATERAL jsonb_each(r.state -> 'settings') AS e) AS s ON s.name = o.name
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.options() IS
'Every setting, its value in this database, its origin and any problem. While pgtrickle run is connected, what it was started with is shown where it '
'overrides the database: origin file, env, profile or flag. Otherwise the values are those that the database has for the role that installed pgtrickle.';

CREATE OR REPLACE FUNCTION pgtrickle.worker_pool_status()
RETURNS TABLE (active_workers int, max_workers int, per_db_cap int, parallel_mode text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN d.used IS NOT NULL AND w.are_known
                THEN least((r.state #>> '{pool,max}')::int, greatest((r.state #>> '{pool,active}')::int - d.used, 0) + w.busy)
                ELSE coalesce((r.state #>> '{pool,active}')::int, 0) END,
           coalesce((r.state #>> '{pool,max}')::int, pgtrickle._setting('max_dynamic_refresh_workers')::int),
           coalesce((r.state #>> '{pool,per_db_cap}')::int, nullif(pgtrickle._setting('per_database_worker_quota')::int, 0),
                    pgtrickle._setting('max_concurrent_refreshes')::int),
           coalesce(r.state #>> '{pool,mode}', pgtrickle._setting('parallel_refresh_mode'))
    FROM pgtrickle._runtime() AS r
    LEFT JOIN LATERAL jsonb_to_recordset(r.state -> 'databases') AS d(used int, is_own bool) ON d.is_own
    CROSS JOIN (
        -- Workers of this database, as of now: what is published is as of the latest tick. Through a pooler they have no pid.
        SELECT count(DISTINCT j.worker_pid)::int AS busy, count(*) FILTER (WHERE j.status = 'RUNNING' AND j.worker_pid IS NULL) = 0 AS are_known
        FROM pgtrickle.pgt_scheduler_jobs AS j
        WHERE j.finished_at IS NULL
    ) AS w
$$;
COMMENT ON FUNCTION pgtrickle.worker_pool_status() IS
'Busy refresh workers of the fleet, their maximum number, the number that this database may use now, and parallel_refresh_mode. Those of this database '
'are counted now, those of others as of the latest tick. Without a connected scheduler: no busy workers, and the settings of this database.';

CREATE OR REPLACE FUNCTION pgtrickle.worker_allocation_status()
RETURNS TABLE (db_name text, workers_used int, workers_quota int, workers_queued int, cluster_active int, cluster_max int)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT d.name, CASE WHEN d.is_own AND w.are_known THEN w.busy ELSE coalesce(d.used, 0) END,
           coalesce(d.quota, pgtrickle._setting('per_database_worker_quota')::int),
           CASE WHEN d.is_own THEN w.queued ELSE coalesce(d.queued, 0) END, p.active_workers, p.max_workers
    FROM pgtrickle._runtime() AS r
    CROSS JOIN pgtrickle.worker_pool_status() AS p
    CROSS JOIN LATERAL jsonb_to_recordset(
        CASE WHEN jsonb_array_length(r.state -> 'databases') > 0 THEN r.state -> 'databases'
             ELSE jsonb_build_array(jsonb_build_object('name', current_database())) END
    ) AS d(name text, used int, quota int, queued int, is_own bool)
    CROSS JOIN (
        SELECT count(DISTINCT j.worker_pid)::int AS busy, count(*) FILTER (WHERE j.status = 'RUNNING' AND j.worker_pid IS NULL) = 0 AS are_known,
               count(*) FILTER (WHERE j.status = 'QUEUED')::int AS queued
        FROM pgtrickle.pgt_scheduler_jobs AS j
        WHERE j.finished_at IS NULL
    ) AS w
    ORDER BY d.name
$$;
COMMENT ON FUNCTION pgtrickle.worker_allocation_status() IS
'A row for every database of the fleet: workers that it uses, its quota (0: none), waiting units, and the workers of the fleet. This database''s are '
'counted now, those of others as of the latest tick. Without a connected scheduler: only this database, with no busy workers.';

CREATE OR REPLACE VIEW pgtrickle.server_worker_inventory AS
SELECT p.kind, p.database, p.pid, p.state, p.since, p.memory
FROM pgtrickle._runtime() AS r
CROSS JOIN LATERAL pg_catalog.jsonb_to_recordset(r.state -> 'processes')
    AS p(kind text, database text, pid int, state text, since timestamptz, memory bigint);
COMMENT ON VIEW pgtrickle.server_worker_inventory IS
'Every process and worker of the fleet, as last published by the scheduler of this database; empty while it is not connected. database is NULL for '
'processes that serve all databases, memory is in bytes. pid: of a process in its operating system, of a worker its PostgreSQL backend.';

CREATE OR REPLACE FUNCTION pgtrickle.parallel_job_status(max_age_seconds int DEFAULT 300)
RETURNS TABLE (job_id bigint, unit_key text, unit_kind text, status text, member_count int, attempt_no int, scheduler_pid int, worker_pid int,
               enqueued_at timestamptz, started_at timestamptz, finished_at timestamptz, duration_ms float8, tier text, members text[],
               detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT j.job_id, j.unit_key, j.unit_kind, j.status, cardinality(j.members), j.attempt_no, j.scheduler_pid, j.worker_pid,
           j.enqueued_at, j.started_at, j.finished_at,
           CASE WHEN j.status <> 'QUEUED' THEN (extract(epoch FROM coalesce(j.finished_at, clock_timestamp()) - j.started_at) * 1000)::float8 END,
           j.tier,
           (SELECT array_agg(coalesce(quote_ident(st.pgt_schema) || '.' || quote_ident(st.pgt_name), u.id::text) ORDER BY u.position)
            FROM unnest(j.members) WITH ORDINALITY AS u(id, position)
            LEFT JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = u.id),
           m.detail
    FROM pgtrickle.pgt_scheduler_jobs AS j
    LEFT JOIN pgtrickle._job_messages AS m ON m.job_id = j.job_id
    WHERE j.finished_at IS NULL OR j.finished_at >= clock_timestamp() - make_interval(secs => max_age_seconds)
    ORDER BY j.job_id DESC
$$;
COMMENT ON FUNCTION pgtrickle.parallel_job_status(int) IS
'Units of work, newest first: all that are not finished, and those that finished in the last max_age_seconds. A worker takes several units at '
'once and is at one at a time: only that one is RUNNING, the others are QUEUED with its worker_pid. duration_ms counts from the start, NULL while '
'queued. members: stream tables, upstream first. detail: why it failed, for roles that may read all members.';

CREATE OR REPLACE FUNCTION pgtrickle.broker_status()
RETURNS TABLE (source text, database text, pending_rows bigint, max_lsn pg_lsn, last_updated_tick bigint, consumers int, scans_done bigint,
               scans_saved bigint, source_oid oid, db_oid oid, max_lsn_u64 numeric)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', b.origin_schema, b.origin_table), b.origin_database::text, b.pending_rows, b.max_lsn, b.last_updated_tick, b.consumers,
           b.scans_done, b.scans_saved, b.origin_relid, split_part(b.origin_key, '/', 2)::oid, b.max_lsn - '0/0'
    FROM pgtrickle._runtime() AS r
    JOIN pgtrickle._broker_answers AS b ON r.running
    ORDER BY 2, 1
$$;
COMMENT ON FUNCTION pgtrickle.broker_status() IS
'The refresh broker''s ledger of the tables of other databases that are mirrored here, per table: changes that the slowest reader may not have read, '
'the greatest LSN, the tick of the broker, the number of registered databases, scans made, and scans saved. pending_rows and max_lsn are shown to '
'roles that may read a stream table over the table, NULL for others. Empty while there is no broker, or enable_refresh_broker is off here. At most a '
'few seconds old.';

CREATE OR REPLACE FUNCTION pgtrickle.cache_stats()
RETURNS TABLE (hits bigint, misses bigint, hit_rate float8, entries bigint, max_entries int, evictions bigint, stored_hits bigint,
               stored_misses bigint, stored_entries bigint, stored_evictions bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.hits, c.misses, c.hits / nullif(c.hits + c.misses, 0)::float8, c.entries,
           coalesce(c.max_entries, pgtrickle._setting('template_cache_max_entries')::int), c.evictions,
           c.stored_hits, c.stored_misses, c.stored_entries, c.stored_evictions
    FROM pgtrickle._runtime() AS r
    CROSS JOIN LATERAL jsonb_to_record('{"hits": 0, "misses": 0, "entries": 0, "evictions": 0, "stored_hits": 0, "stored_misses": 0, "stored_entries": 0,
"stored_evictions": 0}' || coalesce(r.state -> 'cache', '{}'))
        AS c(hits bigint, misses bigint, entries bigint, max_entries int, evictions bigint, stored_hits bigint, stored_misses bigint,
             stored_entries bigint, stored_evictions bigint)
$$;
COMMENT ON FUNCTION pgtrickle.cache_stats() IS
'Compiled templates of all databases in the memory of the pipeline since it started: hits, misses, hit rate (NULL before the first), entries, maximum, '
'evictions. stored_*: the same of its directory of templates, which is searched when memory has none; a miss there is a template that is compiled. '
'Zeros while no scheduler is connected.';

-- SECURITY DEFINER to write the event. Executable by all roles with USAGE: it only causes templates to be compiled again.
CREATE OR REPLACE FUNCTION pgtrickle.clear_caches() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own bigint;
BEGIN
    PERFORM pgtrickle._require_primary();
    SELECT (r.state #>> '{cache,own}')::bigint INTO own
    FROM pgtrickle._runtime() AS r
    JOIN pgtrickle.pgt_runtime AS p ON NOT EXISTS (SELECT FROM pgtrickle.pgt_events AS e WHERE e.what = 'clear_caches' AND e.at > p.updated_at);
    PERFORM pgtrickle._wake('clear_caches');
    RETURN coalesce(own, 0);
END
$$;
COMMENT ON FUNCTION pgtrickle.clear_caches() IS
'Removes the compiled templates of this database: those in the memory of the pipeline, and the stored ones that this database has used since the pipeline '
'started and that are still there. The next refresh of each stream table compiles it again; other databases keep theirs in memory. It happens at the next '
'tick after the commit. Returns the number of entries of both kinds that are there to be removed, at most a few seconds old; 0 while no scheduler is '
'connected, and when a call before this one has removed them or is about to.';
