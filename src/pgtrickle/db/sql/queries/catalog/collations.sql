-- Names of collations. %(collations)s: oids; 0 and the default collation are permitted.
-- Returns: for each, in that order, the quoted name; NULL for 0 and for the default collation.
SELECT CASE WHEN u.c <> ALL ('{0,100}') THEN u.c::oid::regcollation::text END
FROM pg_catalog.unnest(%(collations)s::int8[]) WITH ORDINALITY AS u(c, ord)
ORDER BY u.ord
