-- A type of users that the text of a query names. %(id)s: pgt_id. Returns: its name, if there is one.
SELECT k.name
FROM pgtrickle.pgt_names AS k
WHERE k.pgt_id = %(id)s AND k.in_text AND k.classid = 'pg_catalog.pg_type'::pg_catalog.regclass
LIMIT 1
