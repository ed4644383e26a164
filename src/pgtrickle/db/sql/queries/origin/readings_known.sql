-- Readings that this database has noted, among those that mirrors have. %(tokens)s. Returns: token.
SELECT r.token::text FROM pgtrickle.pgt_readings AS r WHERE r.token = ANY (%(tokens)s::text[]::uuid[])
