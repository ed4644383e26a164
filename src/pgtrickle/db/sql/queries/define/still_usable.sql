-- Whether a probe view may still define a stream table; raises what create_stream_table would. %(probe)s: its name; %(id)s: the stream table,
-- or NULL for one of another database. Returns: why it cannot be maintained from changes (a reason as jsonb, or NULL),
-- why it must not be read as it is (or NULL),
-- then columns without meaning: functions are only called if they are selected.
SELECT
    pgtrickle._full_reason(p.oid),
    pgtrickle._read_as_another(p.oid, a.oid, r.oid),
    pgtrickle._refuse_unusable(p.oid),
    pgtrickle._check_rights(
        p.oid, r.oid, a.oid,
        -- Rights on those count where they come from.
        ARRAY(SELECT m.pgt_relid FROM pgtrickle.pgt_stream_tables AS m JOIN pgtrickle.pgt_mirrors AS o ON o.pgt_id = m.pgt_id)
    )
FROM (SELECT %(probe)s::pg_catalog.regclass::oid) AS p(oid)
JOIN pg_catalog.pg_roles AS r ON r.rolname = current_user
LEFT JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = %(id)s
LEFT JOIN pg_catalog.pg_roles AS a ON a.rolname = pgtrickle._author(st.created_by, st.created_key)
