-- Columns of buffers whose type is not PostgreSQL's own. %(relids)s: the sources.
-- Returns for each that has some: the source, an object of attribute number (of the source) and type.
SELECT s.relid, pg_catalog.jsonb_object_agg(pg_catalog.substr(a.attname, 2), a.atttypid::int8)
FROM pg_catalog.unnest(%(relids)s::int8[]) AS s (relid)
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = pg_catalog.to_regclass('pgtrickle_changes.changes_' || s.relid)
WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
GROUP BY s.relid
