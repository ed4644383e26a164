-- What would keep a stream table from being dropped, besides other stream tables: views, foreign keys and the like.
-- Parameters: pgt_id.
-- Returns: descriptions.
SELECT DISTINCT CASE WHEN r.oid IS NULL THEN pg_catalog.pg_describe_object(d.classid, d.objid, 0)
                     ELSE pg_catalog.pg_describe_object('pg_catalog.pg_class'::pg_catalog.regclass, r.ev_class, 0) END
FROM pgtrickle.pgt_stream_tables AS st
JOIN pg_catalog.pg_depend AS d ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = st.pgt_relid
LEFT JOIN pg_catalog.pg_rewrite AS r ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND r.oid = d.objid
WHERE st.pgt_id = %s AND d.deptype = 'n'
ORDER BY 1
