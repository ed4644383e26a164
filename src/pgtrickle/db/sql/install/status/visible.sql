-- Shared by the status functions: visibility of messages, the state that the control plane publishes, its settings while it does not run.
-- Messages of failures can quote rows ("invalid input syntax for type integer: ..."), so they are for those who may read the stream
-- table, its creator, and the role that installed pgtrickle. Tables are read through these views with the rights of their owner while
-- current_user is still the caller; the columns themselves are closed in privileges.sql. Numbers of rows tell of the sources as well.

CREATE OR REPLACE FUNCTION pgtrickle._may_read(relid oid, created_by name) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(has_table_privilege(relid, 'SELECT'), false)
        OR coalesce((SELECT pg_has_role(r.oid, 'USAGE') FROM pg_roles AS r WHERE r.rolname = created_by), false)
        OR (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = 'pgtrickle.pgt_stream_tables'::regclass)
$$;
COMMENT ON FUNCTION pgtrickle._may_read(oid, name) IS
'Internal. Whether the current role may see the messages of a stream table: it may read the table, or has the role of its creator or of the installer.';

-- For texts that show keys and values of rows. A role that row security restricts does not see all rows of a source either.
CREATE OR REPLACE FUNCTION pgtrickle._may_read_sources(id bigint) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = 'pgtrickle.pgt_stream_tables'::regclass)
        OR NOT EXISTS (SELECT
                       FROM pgtrickle.pgt_dependencies AS d
                       WHERE d.pgt_id = id
                         AND (NOT coalesce(has_table_privilege(d.source_relid, 'SELECT'), false) OR row_security_active(d.source_relid)))
$$;
COMMENT ON FUNCTION pgtrickle._may_read_sources(bigint) IS
'Internal. Whether the current role may read all rows of all sources of a stream table, or has the role of the installer.';

CREATE OR REPLACE VIEW pgtrickle._messages AS
SELECT st.pgt_id, m.last_error_message, m.reinit_reason
FROM pgtrickle.pgt_stream_tables AS st
LEFT JOIN LATERAL (SELECT st.last_error_message
                          || CASE WHEN st.last_error_detail ->> 'of' = st.last_error_message AND pgtrickle._may_read_sources(st.pgt_id)
                                  THEN format(' (%s)', st.last_error_detail ->> 'text') ELSE '' END AS last_error_message, st.reinit_reason
                   WHERE coalesce(st.last_error_message, st.reinit_reason) IS NOT NULL
                     AND pgtrickle._may_read(st.pgt_relid, pgtrickle._author(st.created_by, st.created_key))) AS m ON true;
COMMENT ON VIEW pgtrickle._messages IS 'Internal. Messages of stream tables, for those who may see them; NULL for others.';

CREATE OR REPLACE VIEW pgtrickle._refresh_messages AS
SELECT h.refresh_id, h.pgt_id, m.reason, m.error_message, m.engine_reason
FROM pgtrickle.pgt_refresh_history AS h
LEFT JOIN LATERAL (SELECT h.reason, h.error_message, pgtrickle._reason_text(h.engine_reason_code, h.engine_reason_params) AS engine_reason
                   FROM pgtrickle.pgt_stream_tables AS st
                   WHERE st.pgt_id = h.pgt_id AND coalesce(h.reason, h.error_message, h.engine_reason_code) IS NOT NULL
                     AND pgtrickle._may_read(st.pgt_relid, pgtrickle._author(st.created_by, st.created_key))) AS m ON true;
COMMENT ON VIEW pgtrickle._refresh_messages IS 'Internal. Reasons and errors in the history, for those who may see them; NULL for others.';

CREATE OR REPLACE VIEW pgtrickle._refresh_numbers AS
SELECT h.refresh_id, h.pgt_id, h.rows_inserted, h.rows_deleted, h.delta_row_count, h.operator_rows
FROM pgtrickle.pgt_refresh_history AS h
WHERE h.pgt_id IN (SELECT st.pgt_id FROM pgtrickle.pgt_stream_tables AS st
    WHERE pgtrickle._may_read(st.pgt_relid, pgtrickle._author(st.created_by, st.created_key)));
COMMENT ON VIEW pgtrickle._refresh_numbers IS 'Internal. How many rows refreshes moved, for those who may read the stream table.';

CREATE OR REPLACE VIEW pgtrickle._job_messages AS
SELECT j.job_id, m.detail
FROM pgtrickle.pgt_scheduler_jobs AS j
LEFT JOIN LATERAL (SELECT j.detail
                   WHERE j.detail IS NOT NULL
                     -- a member that is gone: only the installer knows whom its message concerned
                     AND NOT EXISTS (SELECT
                                     FROM pg_catalog.unnest(j.members) AS u(id)
                                     LEFT JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = u.id
                                     WHERE NOT pgtrickle._may_read(st.pgt_relid, pgtrickle._author(st.created_by, st.created_key)))) AS m ON true;
COMMENT ON VIEW pgtrickle._job_messages IS 'Internal. Why units of work failed, for those who may see it of all members; NULL for others.';

-- The number of writes to a table of another database is shown to roles that may read a stream table over it.
CREATE OR REPLACE VIEW pgtrickle._broker_answers AS
SELECT m.origin_schema, m.origin_table, m.origin_database, m.origin_key, m.origin_relid, b.last_updated_tick, b.consumers, b.scans_done, b.scans_saved,
       n.pending_rows, n.max_lsn
FROM (SELECT DISTINCT ON (origin_key, origin_relid) * FROM pgtrickle.pgt_mirrors ORDER BY origin_key, origin_relid, pgt_id) AS m
CROSS JOIN pgtrickle.pgt_runtime AS r
CROSS JOIN LATERAL pg_catalog.jsonb_to_recordset(r.broker)
    AS b(origin text, source_oid oid, pending_rows bigint, max_lsn pg_lsn, last_updated_tick bigint, consumers int, scans_done bigint, scans_saved bigint)
LEFT JOIN LATERAL (SELECT b.pending_rows, b.max_lsn
                   WHERE EXISTS (SELECT
                                 FROM pgtrickle.pgt_mirrors AS o
                                 JOIN pgtrickle.pgt_stream_tables AS ot ON ot.pgt_id = o.pgt_id
                                 LEFT JOIN pgtrickle.pgt_dependencies AS d ON d.source_relid = ot.pgt_relid
                                 LEFT JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = d.pgt_id
                                 WHERE o.origin_key = m.origin_key AND o.origin_relid = m.origin_relid
                                   AND pgtrickle._may_read(st.pgt_relid, pgtrickle._author(st.created_by, st.created_key)))) AS n ON true
WHERE b.origin = m.origin_key AND b.source_oid = m.origin_relid;
COMMENT ON VIEW pgtrickle._broker_answers IS
'Internal. What the broker says of tables elsewhere that are mirrored here; numbers for those who may read a stream table that reads the mirror, NULL '
'for others.';

CREATE OR REPLACE FUNCTION pgtrickle._setting(name text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- a value that is out of range is refused by the control plane; a status function must not fail because of it
    SELECT lower(btrim(CASE WHEN o.problem IS NULL THEN o.value ELSE o.default_value END)) FROM pgtrickle._stored_options() AS o WHERE o.name = _setting.name
$$;
COMMENT ON FUNCTION pgtrickle._setting(text) IS
'Internal. A setting as this database says it. What the environment, a file or a flag say is known to the control plane only: ask _runtime first.';

CREATE OR REPLACE FUNCTION pgtrickle._is_on(name text) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._setting(name) IN ('on', 'true', 'yes', '1')
$$;
COMMENT ON FUNCTION pgtrickle._is_on(text) IS 'Internal. The same for switches.';

-- A session of the scheduler is the sign of life: its application_name is visible to everybody, and it ends with the process. Behind a
-- transaction pooler neither is true, and its lease shows it; a holder of the lock removes an old lease.
-- SECURITY DEFINER to see when it last did something.
CREATE OR REPLACE FUNCTION pgtrickle._runtime(OUT running bool, OUT ticking bool, OUT enabled bool, OUT state jsonb, OUT updated_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.running, s.running AND coalesce(s.silence < greatest(5 * pgtrickle._setting('scheduler_interval_ms')::int / 1000.0, 30), true),
           coalesce((p.state ->> 'enabled')::bool, pgtrickle._is_on('enabled')), coalesce(p.state, '{}'), r.updated_at
    FROM (SELECT coalesce(l.until > clock_timestamp(), a.number > 0) AS running, CASE WHEN l.until IS NULL THEN a.silence END AS silence, a.pids
          FROM (SELECT count(*) AS number, array_agg(a.pid) AS pids,
                       min(extract(epoch FROM clock_timestamp() - greatest(a.state_change, a.query_start))) AS silence
                FROM pg_stat_activity AS a
                WHERE a.datname = current_database() AND a.application_name IN ('pgtrickle/scheduler', 'pgtrickle/control')) AS a
          LEFT JOIN pgtrickle.pgt_leases AS l ON l.name = 'scheduler') AS s
    LEFT JOIN pgtrickle.pgt_runtime AS r ON true
    -- What an earlier session has published is not shown.
    CROSS JOIN LATERAL (
        SELECT CASE WHEN s.running AND coalesce((r.state ->> 'pid')::int = ANY (s.pids), r.state ->> 'pid' IS NULL) THEN r.state END
    ) AS p(state)
$$;
COMMENT ON FUNCTION pgtrickle._runtime() IS
'Internal. Whether this database''s scheduler is connected, whether it has done something lately, whether it may dispatch, and what this session of it '
'last published; {} when it is not connected.';
