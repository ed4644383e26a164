-- Records wider types of a stream table's columns. %(id)s: pgt_id. %(version)s: nothing is changed if its definition has another one.
-- %(columns)s: jsonb array of {position, type, typmod}; positions begin with 0.
UPDATE pgtrickle.pgt_stream_tables AS st
SET output_columns = (
        SELECT jsonb_agg(CASE WHEN w.position IS NULL THEN e.c ELSE e.c || jsonb_build_object('type', w.type, 'typmod', w.typmod) END ORDER BY e.i)
        FROM jsonb_array_elements(st.output_columns) WITH ORDINALITY AS e (c, i)
        LEFT JOIN jsonb_to_recordset(%(columns)s::jsonb) AS w (position int, type text, typmod int) ON w.position = e.i - 1
    ),
    definition_version = st.definition_version + 1,
    epoch = st.epoch + 1,
    updated_at = clock_timestamp()
WHERE st.pgt_id = %(id)s AND st.definition_version = %(version)s
