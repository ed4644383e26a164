-- Types whose values pg_catalog has no operators for, because they came with an extension or were made by a user, and domains over them.
-- Those whose operators are in pg_catalog whatever the type (arrays, ranges, enums, composites) are among them only where they have an operator
-- class of their own.
-- Returns: oid, oid of the base type, name.
WITH RECURSIVE own AS (
    SELECT t.oid, t.oid AS base
    FROM pg_type AS t
    WHERE t.oid >= 16384
      AND ((t.typtype = 'b' AND t.typcategory <> 'A') OR EXISTS (SELECT FROM pg_opclass AS k WHERE k.opcintype = t.oid AND k.opcdefault))
    UNION ALL
    SELECT t.oid, o.base
    FROM own AS o
    JOIN pg_type AS t ON t.typbasetype = o.oid AND t.typtype = 'd'
)
SELECT o.oid::int8, o.base::int8, format_type(o.oid, NULL)
FROM own AS o
