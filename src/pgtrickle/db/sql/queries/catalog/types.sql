-- Types by oid, looking through domains.
-- %(typids)s, %(typmods)s: arrays of the same length.
-- Returns, in the same order: name (usable in a cast), oid of the base type, typtype of the base ('o' where it has an operator class of its own),
-- element type of an array (or 0),
-- whether its values have a collation.
WITH RECURSIVE given AS (
    SELECT u.typid, u.typmod, u.ord
    FROM unnest(%(typids)s::oid[], %(typmods)s::int4[]) WITH ORDINALITY AS u (typid, typmod, ord)
), chain AS (
    SELECT g.ord, t.oid, t.typtype, t.typbasetype, t.typelem, t.typcategory, t.typcollation
    FROM given AS g
    JOIN pg_type AS t ON t.oid = g.typid
    UNION ALL
    SELECT c.ord, t.oid, t.typtype, t.typbasetype, t.typelem, t.typcategory, t.typcollation
    FROM chain AS c
    JOIN pg_type AS t ON t.oid = c.typbasetype
    WHERE c.typtype = 'd'
)
SELECT
    format_type(g.typid, g.typmod),
    c.oid::int8,
    -- 'o': compared by an operator class of its own, whatever its kind is compared by otherwise
    CASE WHEN c.oid >= 16384 AND EXISTS (SELECT FROM pg_opclass AS k WHERE k.opcintype = c.oid AND k.opcdefault) THEN 'o' ELSE c.typtype::text END,
    CASE WHEN c.typcategory = 'A' THEN c.typelem::int8 ELSE 0 END,
    c.typcollation <> 0
FROM given AS g
JOIN chain AS c ON c.ord = g.ord AND c.typtype <> 'd'
ORDER BY g.ord
