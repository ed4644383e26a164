-- Replicas of tables of this database. %(relids)s: oid array, NULL: all. A row that was copied with the database from another one is not returned.
-- Returns: source, generation, location, columns, computed columns, columns stored as text, readers, whether a user requested it, announced, committed,
-- snapshot and netted as text.
SELECT
    p.source_relid::int8,
    p.generation,
    p.location,
    p.columns_used,
    p.computed,
    p.as_text,
    p.readers,
    p.is_requested,
    p.announced,
    p.committed,
    p.snapshot::text,
    p.netted::text
FROM pgtrickle.pgt_replicas AS p
WHERE p.origin = pgtrickle._origin() AND (%(relids)s::oid[] IS NULL OR p.source_relid = ANY (%(relids)s::oid[]))
ORDER BY p.source_relid
