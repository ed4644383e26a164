-- Stores a query in which renamed objects have their new names. %(id)s: the stream table, whose row is locked; %(query)s; %(typed)s: the same as
-- a user would type it, NULL if it stays. Arrays of equal length: %(relids)s, %(schemas)s, %(names)s as
-- they are in the query now, %(columns)s: jsonb texts that have the new name for each old one. Fences refreshes of the old text.
WITH noted AS (
    UPDATE pgtrickle.pgt_dependencies AS d
    SET source_schema = r.schema_name,
        source_name = r.relation_name,
        column_names = ARRAY(
            SELECT coalesce(r.columns::jsonb ->> k.name::text, k.name)
            FROM unnest(d.column_names) WITH ORDINALITY AS k (name, i)
            ORDER BY k.i
        )
    FROM unnest(%(relids)s::int8[], %(schemas)s::text[], %(names)s::text[], %(columns)s::text[])
        AS r (relid, schema_name, relation_name, columns)
    WHERE d.pgt_id = %(id)s AND d.source_relid = r.relid::oid
)
UPDATE pgtrickle.pgt_stream_tables AS st
SET defining_query = %(query)s,
    original_query = coalesce(%(typed)s::text, st.original_query),
    output_columns = (
        SELECT jsonb_agg(c || jsonb_build_object('type', format_type((c ->> 'typid')::oid, (c ->> 'typmod')::int)) ORDER BY o)
        FROM jsonb_array_elements(st.output_columns) WITH ORDINALITY AS e (c, o)
    ),
    definition_version = st.definition_version + 1,
    epoch = st.epoch + 1,
    updated_at = clock_timestamp()
WHERE st.pgt_id = %(id)s
