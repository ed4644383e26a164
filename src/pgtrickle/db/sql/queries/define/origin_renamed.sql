-- Whether a table, or one of its columns, was renamed, by the current catalog and not the snapshot; false if it was dropped.
-- %(relid)s, %(schema)s, %(table)s; arrays of equal length: %(attnums)s, %(columns)s.
SELECT
    coalesce(pgtrickle._is_renamed(%(relid)s::int8::oid, %(schema)s, %(table)s), false)
    OR EXISTS (
        SELECT
        FROM unnest(%(attnums)s::int2[], %(columns)s::text[]) AS k (attnum, name)
        WHERE pgtrickle._is_renamed(%(relid)s::int8::oid, k.attnum, %(schema)s, %(table)s, k.name)
    )
