-- USAGE on the schema is the gate (granted by the DBA). Behind it: catalogs may be read, functions may be called; those that change
-- something check the caller themselves. Helpers that only SECURITY DEFINER functions or the control plane call are closed.
REVOKE ALL ON ALL TABLES IN SCHEMA pgtrickle FROM PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO PUBLIC;
-- All columns but those whose text can quote rows, or that count rows of other databases; the views of status/visible.sql show them to those who may
-- read the stream table.
DO $$
DECLARE
    hidden record;
BEGIN
    FOR hidden IN
        SELECT * FROM (VALUES ('pgtrickle.pgt_stream_tables'::regclass, '{last_error_message,last_error_detail,reinit_reason,reinit_reason_params}'::name[]),
                              ('pgtrickle.pgt_refresh_history'::regclass, '{reason,reason_params,error_message,engine_reason_params,rows_inserted,
rows_deleted,delta_row_count,operator_rows}'),
                              ('pgtrickle.pgt_scheduler_jobs'::regclass, '{detail}'),
                              ('pgtrickle.pgt_definitions'::regclass, '{query,error_message}'),
                              ('pgtrickle.pgt_runtime'::regclass, '{broker}')) AS h(relation, columns)
    LOOP
        EXECUTE format('REVOKE SELECT ON %s FROM PUBLIC', hidden.relation);
        EXECUTE (SELECT format('GRANT SELECT (%s) ON %s TO PUBLIC', string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum), hidden.relation)
                 FROM pg_attribute AS a
                 WHERE a.attrelid = hidden.relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (hidden.columns));
    END LOOP;
END
$$;
REVOKE ALL ON ALL TABLES IN SCHEMA pgtrickle_changes FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._store_dependencies(bigint, oid, oid, oid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._empty(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._store_session(bigint, oid, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._authorize(bigint, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._caller(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._column_definitions(jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._alert(text, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._wake(text, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._leave_groups(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._shape_publication(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._unlist_publication(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._subscriber(pgtrickle.pgt_stream_tables, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._make_mirror(jsonb, jsonb, jsonb, oid) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._drop_mirror(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._rename_mirror(bigint, int, name, name, name[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._comment_mirror(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._register_as(oid, oid[], oid, name, name, text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._alter_as(oid, oid[], pgtrickle.pgt_stream_tables, oid, text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._drop_stray_capture() FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._rebind() FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._understood(bigint, oid) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._take_over(bigint, int, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._protect(oid) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._create_partition(oid, text, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._create_storage(text, jsonb, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._add_partitions(bigint, anyarray, int) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._drop_guard(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._guard_sources(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._guard_reader(pgtrickle.pgt_readers) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._drop_reader_guard(pgtrickle.pgt_readers) FROM PUBLIC;
REVOKE ALL ON pgtrickle.pgt_readers FROM PUBLIC;
REVOKE ALL ON pgtrickle.pgt_readings FROM PUBLIC;
REVOKE ALL ON pgtrickle.pgt_replicas FROM PUBLIC;
REVOKE ALL ON pgtrickle.pgt_plans FROM PUBLIC;
REVOKE ALL ON pgtrickle.pgt_privileges FROM PUBLIC;
REVOKE ALL ON pgtrickle.pgt_subscribers FROM PUBLIC;
-- Default privileges of the role that installs may have opened them: what is in the schema is closed with it.
DO $$
DECLARE
    opened record;
BEGIN
    FOR opened IN
        SELECT DISTINCT n.nspname, CASE n.nspname WHEN 'pgtrickle' THEN 'CREATE' ELSE 'ALL' END AS privilege, pg_get_userbyid(a.grantee) AS grantee
        FROM pg_namespace AS n
        CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
        WHERE n.nspname IN ('pgtrickle', 'pgtrickle_changes') AND a.grantee NOT IN (0, n.nspowner)
          AND (a.privilege_type = 'CREATE' OR (n.nspname <> 'pgtrickle' AND pg_get_userbyid(a.grantee) <> 'pgtrickle_broker'))
    LOOP
        EXECUTE format('REVOKE %s ON SCHEMA %I FROM %I', opened.privilege, opened.nspname, opened.grantee);
    END LOOP;
END
$$;
-- The functions that inspect a query have long statements that run once or twice. Compiling them to machine code takes seconds (PostgreSQL with LLVM). So do
-- large hash tables, which they would get with a large work_mem, as in sessions that refresh: the planner overestimates their rows.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN
        SELECT p.oid
        FROM pg_proc AS p
        WHERE p.pronamespace = 'pgtrickle'::regnamespace
          AND p.proname IN ('_register', '_register_as', '_alter', '_alter_as', '_describe', '_check_rights', '_who_evaluates', '_check_evaluation',
                            '_refuse_unusable', '_full_reason', '_untrusted', '_untrusted_among', '_lost_privilege', '_reads_otherwise')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET jit = off SET work_mem = ''4MB''', f);
    END LOOP;
END
$$;
-- The caller's settings decide how constants are parsed, and parsed statements are cached for the session. With standard_conforming_strings off, \d in a
-- pattern is d: the search for untrusted code would find nothing.
DO $$
DECLARE
    reader record;
BEGIN
    FOR reader IN
        SELECT p.oid::regprocedure AS signature
        FROM pg_proc AS p
        WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.proconfig IS NOT NULL AND strpos(p.prosrc, chr(92)) > 0
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET standard_conforming_strings = on', reader.signature);
    END LOOP;
END
$$;
