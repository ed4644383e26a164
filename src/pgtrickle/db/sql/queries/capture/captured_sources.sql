-- Tables with a buffer. No parameters. Returns: oid of the source.
SELECT s.source_relid::int8
FROM pgtrickle.pgt_sources AS s
WHERE pg_catalog.to_regclass('pgtrickle_changes.changes_' || s.source_relid) IS NOT NULL
ORDER BY 1
