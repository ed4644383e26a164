-- What the control plane keeps in a database besides the catalog: events for its scheduler, units of work, its own state.

-- Append-only, so that two sessions that define stream tables in long transactions do not wait for one another. Read by snapshot, as
-- change buffers are.
CREATE TABLE IF NOT EXISTS pgtrickle.pgt_events (
    xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    pgt_id bigint,
    what text NOT NULL,
    at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
CREATE INDEX IF NOT EXISTS pgt_events_xid ON pgtrickle.pgt_events (xid);
COMMENT ON TABLE pgtrickle.pgt_events IS
'Events for the scheduler: stream tables that were created, altered or dropped, or whose refresh was requested. Kept for a while only.';
COMMENT ON COLUMN pgtrickle.pgt_events.pgt_id IS 'NULL: all of them.';
COMMENT ON COLUMN pgtrickle.pgt_events.what IS
'create, alter, drop, refresh, resume, repair; subscribe, publish (who follows it from outside has changed); for all of them: install, group (refresh '
'groups were changed), clear_caches.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_scheduler_jobs (
    job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    unit_key text NOT NULL,
    unit_kind text NOT NULL
        CHECK (unit_kind IN ('singleton', 'atomic_group', 'repeatable_read_group', 'immediate_closure', 'fused_chain', 'cyclic_scc')),
    members bigint[] NOT NULL,
    tier text NOT NULL DEFAULT 'hot',
    status text NOT NULL DEFAULT 'QUEUED'
        CHECK (status IN ('QUEUED', 'RUNNING', 'SUCCEEDED', 'RETRYABLE_FAILED', 'PERMANENT_FAILED', 'CANCELLED')),
    attempt_no int NOT NULL DEFAULT 1,
    scheduler_pid int,
    worker_pid int,
    enqueued_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz,
    detail text,
    iterations int,
    taken_at timestamptz,
    tick_at timestamptz
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS pgt_scheduler_jobs_time ON pgtrickle.pgt_scheduler_jobs (enqueued_at);
CREATE INDEX IF NOT EXISTS pgt_scheduler_jobs_open ON pgtrickle.pgt_scheduler_jobs (job_id) WHERE finished_at IS NULL;
COMMENT ON TABLE pgtrickle.pgt_scheduler_jobs IS 'Units of stream tables that are refreshed together, since they were queued. Kept for a day.';
COMMENT ON COLUMN pgtrickle.pgt_scheduler_jobs.members IS 'pgt_id of each, upstream first.';
COMMENT ON COLUMN pgtrickle.pgt_scheduler_jobs.scheduler_pid IS
'The backend of the scheduler''s session, as in pg_stat_activity. NULL behind a transaction pooler: it has none of its own.';
COMMENT ON COLUMN pgtrickle.pgt_scheduler_jobs.worker_pid IS
'The backend of the session that writes, as in pg_stat_activity. NULL behind a transaction pooler.';
COMMENT ON COLUMN pgtrickle.pgt_scheduler_jobs.status IS
'QUEUED: it waits, also in a lease whose worker is at another unit (then worker_pid is set). RUNNING: a worker is at it. Units whose changes are applied in '
'one wave are one step of their worker: the first of them is RUNNING until all are done.';
COMMENT ON COLUMN pgtrickle.pgt_scheduler_jobs.taken_at IS 'When a worker took it, together with the other units of its lease.';
COMMENT ON COLUMN pgtrickle.pgt_scheduler_jobs.tick_at IS 'When the tick of the scheduler began that found it due.';
COMMENT ON COLUMN pgtrickle.pgt_scheduler_jobs.iterations IS 'Of a cyclic_scc: rounds until nothing changed.';
COMMENT ON COLUMN pgtrickle.pgt_scheduler_jobs.detail IS 'Why it failed or was cancelled.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_refresh_groups (
    group_name text PRIMARY KEY,
    isolation text NOT NULL DEFAULT 'read_committed' CHECK (isolation IN ('read_committed', 'repeatable_read')),
    members bigint[] NOT NULL,
    created_by name NOT NULL DEFAULT current_user,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    created_key text,
    applied_from text
);
COMMENT ON TABLE pgtrickle.pgt_refresh_groups IS 'Stream tables that are refreshed together.';
COMMENT ON COLUMN pgtrickle.pgt_refresh_groups.applied_from IS 'The set of definitions that `pgtrickle apply` created it from. NULL: created by hand.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_leases (
    name text PRIMARY KEY,
    holder text NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 20);
COMMENT ON TABLE pgtrickle.pgt_leases IS
'The active scheduler (or launcher) behind a transaction pooler, through which a session cannot hold an advisory lock. A lease that was not renewed in '
'time is free.';
COMMENT ON COLUMN pgtrickle.pgt_leases.until IS 'By the clock of this server.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_runtime (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    state jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    broker jsonb NOT NULL DEFAULT '[]'
) WITH (fillfactor = 20);
COMMENT ON TABLE pgtrickle.pgt_runtime IS
'The last published state of the control plane. Written by the scheduler of this database when it changes; the status functions show it.';
COMMENT ON COLUMN pgtrickle.pgt_runtime.state IS
'{"enabled": bool, "tick", "pool": {"active", "max", "per_db_cap", "mode"}, "databases": [{"name", "used", "quota", "queued"}],
"processes": [{"kind", "database" or null, "pid", "state", "since" as an ISO timestamp, "memory" in bytes}],
"cache": {"hits", "misses", "entries", "evictions", "max_entries", "stored_hits", "stored_misses", "stored_entries", "stored_evictions",
"own": entries that clear_caches() removes},
"origins": [{"origin", "problem"}] other databases that cannot be polled, "broker_problem": text or null, "lag_warn_bytes": publication_lag_warn_lsn,
"settings": {name: {"value", "origin"}} that pgtrickle run was started with}
Missing keys are unknown. Shown only while a session of this database has the application_name pgtrickle/scheduler, or a scheduler has its lease.';
COMMENT ON COLUMN pgtrickle.pgt_runtime.broker IS
'Counts of the refresh broker for the tables of other databases that are mirrored here: [{"origin", "source_oid", "pending_rows", "max_lsn" as in '
'pg_lsn, "last_updated_tick", "consumers", "scans_done", "scans_saved"}]. broker_status() shows them to roles that may read a stream table over them.';
