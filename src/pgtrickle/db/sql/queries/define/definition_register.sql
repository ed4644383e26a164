-- Creates or alters a stream table whose query, over mirrors, is in the probe. %(id)s: the one to alter, or NULL; %(role)s: who asked;
-- %(mirrors)s: oids of the mirrors, whose rights were checked at their origins; %(schema)s, %(name)s, %(query)s as typed, %(options)s.
SELECT CASE
    WHEN %(id)s::int8 IS NULL THEN pgtrickle._register_as(
        r.oid, %(mirrors)s::oid[], 'pg_temp.__pgt_probe'::regclass::oid, %(schema)s, %(name)s, %(query)s, %(options)s::jsonb
    )::text
    ELSE (
        SELECT pgtrickle._alter_as(
            r.oid, %(mirrors)s::oid[], st, 'pg_temp.__pgt_probe'::regclass::oid, %(query)s, %(options)s::jsonb
        )::text
        FROM (SELECT * FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = %(id)s FOR UPDATE) AS st
    )
END
FROM pg_roles AS r
WHERE r.rolname = %(role)s
