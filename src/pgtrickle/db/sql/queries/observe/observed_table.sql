-- One stream table in full. %(schema)s, %(name)s.
-- allowed_lag: how old a pending change may become, by the schedule, before its refresh begins; NULL: a cron expression, or never.
SELECT st.pgt_id, st.original_query AS query, st.defining_query, st.plan, st.output_columns AS columns, st.reinit_reason, st.frontier,
       extract(epoch FROM st.created_at)::float8 AS created_at, st.created_by::text AS author, st.run_as, st.engine, st.tier_pinned,
       pgtrickle._full_when() AS full_when,
       (SELECT CASE WHEN f.instant > '-infinity' THEN extract(epoch FROM statement_timestamp() - f.instant)::float8 END
        FROM pgtrickle._fresh_from(statement_timestamp()) AS f
        WHERE f.pgt_id = st.pgt_id AND (st.schedule = 'calculated' OR pgtrickle._schedule_seconds(st.schedule) IS NOT NULL)) AS allowed_lag
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_schema = %(schema)s AND st.pgt_name = %(name)s
