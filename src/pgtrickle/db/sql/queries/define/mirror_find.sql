-- A stored mirror with exactly these columns. Its row is locked, so that it cannot be dropped. %(key)s, %(relid)s: the table at its origin; %(columns)s:
-- attribute numbers, in order; %(names)s: names of the columns, in any order; %(local)s: the relation that it replaces here, or NULL. Returns: pgt_id.
SELECT m.pgt_id
FROM pgtrickle.pgt_mirrors AS m
JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = m.pgt_id
WHERE m.is_stored
  AND m.origin_key = %(key)s
  AND m.origin_relid = %(relid)s::int8::oid
  AND ARRAY(SELECT a FROM unnest(m.columns_used) AS a ORDER BY a) = %(columns)s::int2[]
  -- A mirror that has not followed renamed columns yet does not match.
  AND ARRAY(SELECT c ->> 'name' FROM jsonb_array_elements(st.output_columns) AS c ORDER BY 1)
      = ARRAY(SELECT n FROM unnest(%(names)s::text[]) AS n ORDER BY 1)
  AND m.local_relid IS NOT DISTINCT FROM %(local)s::int8::oid
  AND st.status IN ('INITIALIZING', 'ACTIVE')
ORDER BY m.pgt_id
LIMIT 1
FOR UPDATE OF st
