-- Which of the readings that mirrors refer to this database has recorded. %(tokens)s. Returns: token.
SELECT r.token::text FROM pgtrickle.pgt_readings AS r WHERE r.token = ANY (%(tokens)s::text[]::uuid[])
