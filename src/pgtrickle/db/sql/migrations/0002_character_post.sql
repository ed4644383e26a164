-- Rows and groups were identified by values of type character without their trailing blanks, and now with them. What may be identified by such a value
-- is computed again: where a result column, a column that is read, a cast in the query or in a view that it reads, or a function that it calls is of
-- this type or of a domain over it.
WITH RECURSIVE character_types(oid, typname) AS (
    SELECT t.oid, t.typname FROM pg_catalog.pg_type AS t WHERE t.oid = 'pg_catalog.bpchar'::pg_catalog.regtype
    UNION
    SELECT t.oid, t.typname FROM pg_catalog.pg_type AS t JOIN character_types AS c ON t.typbasetype = c.oid
), texts(pgt_id, content) AS (
    SELECT st.pgt_id, st.defining_query FROM pgtrickle.pgt_stream_tables AS st
    UNION ALL
    SELECT d.pgt_id, pg_catalog.pg_get_viewdef(v.oid)
    FROM pgtrickle.pgt_dependencies AS d
    JOIN pg_catalog.pg_class AS v ON v.oid = d.source_relid AND v.relkind = 'v'
), affected(pgt_id) AS (
    SELECT st.pgt_id
    FROM pgtrickle.pgt_stream_tables AS st
    CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(st.output_columns) AS o
    WHERE (o ->> 'typid')::oid IN (SELECT c.oid FROM character_types AS c)
    UNION
    SELECT d.pgt_id
    FROM pgtrickle.pgt_dependencies AS d
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.source_relid AND a.attnum = ANY (d.columns_used)
    WHERE a.atttypid IN (SELECT c.oid FROM character_types AS c)
    UNION
    SELECT t.pgt_id
    FROM texts AS t
    JOIN character_types AS c ON pg_catalog.strpos(t.content, c.typname) > 0 OR t.content ~ '\mcharacter\M(?! varying)'
    UNION
    SELECT st.pgt_id
    FROM pgtrickle.pgt_stream_tables AS st
    JOIN pg_catalog.pg_proc AS p ON p.oid = ANY (st.functions_used)
    WHERE p.prorettype IN (SELECT c.oid FROM character_types AS c)
)
UPDATE pgtrickle.pgt_stream_tables AS st
SET needs_reinit = true,
    epoch = st.epoch + 1,
    reinit_reason_code = 'character_identity',
    reinit_reason_params = '{}',
    reinit_reason = pgtrickle._reason_text('character_identity', '{}')
WHERE st.is_populated AND NOT st.needs_reinit AND st.pgt_id IN (SELECT a.pgt_id FROM affected AS a);
