-- Operators of users and extensions among given ones. %(operators)s: array of oids. Returns: oid, schema, operator as text.
SELECT o.oid::int8, n.nspname::text, o.oprname::text, o.oid::regoperator::text
FROM pg_operator AS o
JOIN pg_namespace AS n ON n.oid = o.oprnamespace
WHERE o.oid = ANY (%(operators)s::oid[]) AND n.nspname <> 'pg_catalog'
ORDER BY o.oid
