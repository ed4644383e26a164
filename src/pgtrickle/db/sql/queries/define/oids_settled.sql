-- Notes that the oids that a stream table's query is known by are those of this database, if they have the names that the query has for them:
-- it was copied, or its server upgraded. %(id)s: pgt_id.
UPDATE pgtrickle.pgt_stream_tables AS st
SET defined_in = pgtrickle._origin()
WHERE st.pgt_id = %(id)s
  AND st.defined_in IS DISTINCT FROM pgtrickle._origin()
  AND NOT EXISTS (
      SELECT
      FROM pgtrickle.pgt_dependencies AS d
      LEFT JOIN pg_class AS c ON c.oid = d.source_relid
      LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
      WHERE d.pgt_id = st.pgt_id AND (n.nspname, c.relname) IS DISTINCT FROM (d.source_schema, d.source_name)
  )
