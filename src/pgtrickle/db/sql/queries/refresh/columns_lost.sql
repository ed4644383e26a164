-- Columns that a stream table had and has no more, because somebody has dropped or renamed them. %(relid)s: its storage; %(names)s: text array.
-- Returns: an array of their names, in order; no row if the storage does not exist.
SELECT ARRAY(
    SELECT n.name
    FROM unnest(%(names)s::text[]) WITH ORDINALITY AS n (name, i)
    WHERE NOT EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = n.name AND NOT a.attisdropped)
    ORDER BY n.i
)
FROM pg_class AS c
WHERE c.oid = %(relid)s::oid
