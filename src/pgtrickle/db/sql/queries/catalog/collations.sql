-- Names of collations. %(collations)s: oids, 0 or the default one among them. Returns: for each, in that order, its quoted name, or NULL for those two.
SELECT CASE WHEN u.c <> ALL ('{0,100}') THEN u.c::oid::regcollation::text END
FROM pg_catalog.unnest(%(collations)s::int8[]) WITH ORDINALITY AS u(c, ord)
ORDER BY u.ord
