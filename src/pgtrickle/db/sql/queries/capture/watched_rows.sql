-- The catalog rows of watched objects. %(relations)s, %(functions)s, %(types)s: oid arrays.
-- Returns a row for each of them: kind (r, f, t) and oid of the object, and a hash of the row's version (xmin). VACUUM and ANALYZE
-- change no xmin. The sum of the hashes changes when a row is added, changed or deleted; each tick reads it (capture/catalog_watch.py).
SELECT 'r' AS kind, c.oid::int8 AS object, pg_catalog.hashtext(c.xmin::text) AS state
FROM pg_catalog.pg_class AS c
WHERE c.oid = ANY (%(relations)s::oid[])
UNION ALL
SELECT 'r', a.attrelid::int8, pg_catalog.hashtext(a.xmin::text)
FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid = ANY (%(relations)s::oid[]) AND a.attnum > 0
UNION ALL
SELECT 'r', i.inhparent::int8, pg_catalog.hashtext(i.xmin::text)
FROM pg_catalog.pg_inherits AS i
WHERE i.inhparent = ANY (%(relations)s::oid[])
UNION ALL
SELECT 'r', w.ev_class::int8, pg_catalog.hashtext(w.xmin::text)
FROM pg_catalog.pg_rewrite AS w
WHERE w.ev_class = ANY (%(relations)s::oid[])
UNION ALL
SELECT 'r', t.tgrelid::int8, pg_catalog.hashtext(t.xmin::text)
FROM pg_catalog.pg_trigger AS t
WHERE t.tgrelid = ANY (%(relations)s::oid[])
UNION ALL
SELECT 'f', p.oid::int8, pg_catalog.hashtext(p.xmin::text)
FROM pg_catalog.pg_proc AS p
WHERE p.oid = ANY (%(functions)s::oid[])
UNION ALL
SELECT 't', e.enumtypid::int8, pg_catalog.hashtext(e.xmin::text)
FROM pg_catalog.pg_enum AS e
WHERE e.enumtypid = ANY (%(types)s::oid[])
