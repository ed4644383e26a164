-- Raises if a probe view reaches code that the role that evaluates it must not run. %(probe)s: its name; %(id)s: the stream
-- table, or NULL for one of another database.
SELECT pgtrickle._check_evaluation(%(probe)s::pg_catalog.regclass::oid, a.oid, r.oid, coalesce(st.run_as, 'service'))
FROM pg_catalog.pg_roles AS r
LEFT JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = %(id)s
LEFT JOIN pg_catalog.pg_roles AS a ON a.rolname = pgtrickle._author(st.created_by, st.created_key)
WHERE r.rolname = current_user
