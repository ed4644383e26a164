-- Writes down a query that goes by the present names of what it reads. %(id)s, %(version)s: the stream table and its definition_version;
-- %(query)s; %(typed)s: the same as a user would type it; %(relids)s: relations whose names are to be noted. Fences refreshes of the old text.
-- Returns: the new version and epoch, or nothing when the table was altered meanwhile.
WITH noted AS (
    UPDATE pgtrickle.pgt_dependencies AS d
    SET source_schema = n.nspname,
        source_name = c.relname,
        column_names = ARRAY(
            SELECT coalesce(now.name, before.name)
            FROM unnest(pgtrickle._column_names(c.oid, d.columns_used)) WITH ORDINALITY AS now (name, i)
            JOIN unnest(d.column_names) WITH ORDINALITY AS before (name, i) USING (i)
            ORDER BY i
        )
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE d.pgt_id = %(id)s AND d.source_relid = c.oid AND c.oid = ANY (%(relids)s::int8[]::oid[])
)
UPDATE pgtrickle.pgt_stream_tables AS st
SET defining_query = %(query)s,
    original_query = %(typed)s,
    definition_version = st.definition_version + 1,
    epoch = st.epoch + 1,
    updated_at = clock_timestamp()
WHERE st.pgt_id = %(id)s AND st.definition_version = %(version)s
RETURNING st.definition_version, st.epoch
