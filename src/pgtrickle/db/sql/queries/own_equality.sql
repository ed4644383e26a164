-- Types whose values pg_catalog has no operators for, because they came with an extension or were made by a user, and domains over them.
-- Those whose operators are in pg_catalog whatever the type (arrays, ranges, enums, composites) are not among them.
-- Returns: oid, oid of the base type, name.
WITH RECURSIVE own AS (
    SELECT t.oid, t.oid AS base
    FROM pg_type AS t
    WHERE t.typtype = 'b' AND t.oid >= 16384 AND t.typcategory <> 'A'
    UNION ALL
    SELECT t.oid, o.base
    FROM own AS o
    JOIN pg_type AS t ON t.typbasetype = o.oid AND t.typtype = 'd'
)
SELECT o.oid::int8, o.base::int8, format_type(o.oid, NULL)
FROM own AS o
