-- Stream tables that name some of these sources or functions, and that are refreshed. %(objects)s: array of oids.
-- Returns: pgt_id.
SELECT st.pgt_id
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.status IN ('ACTIVE', 'INITIALIZING')
  AND (
      st.pgt_id IN (SELECT d.pgt_id FROM pgtrickle.pgt_dependencies AS d WHERE d.source_relid = ANY (%(objects)s::oid[]))
      OR st.functions_used && %(objects)s::oid[]
      OR st.functions_reached && %(objects)s::oid[]
  )
ORDER BY st.pgt_id
