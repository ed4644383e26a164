-- The columns of a stream table that somebody has dropped or renamed. %(relid)s: its storage table; %(names)s: text array of the columns that it
-- should have. Returns: an array of the missing names, in order; no row if the storage table does not exist.
SELECT ARRAY(
    SELECT n.name
    FROM unnest(%(names)s::text[]) WITH ORDINALITY AS n (name, i)
    WHERE NOT EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = n.name AND NOT a.attisdropped)
    ORDER BY n.i
)
FROM pg_class AS c
WHERE c.oid = %(relid)s::oid
