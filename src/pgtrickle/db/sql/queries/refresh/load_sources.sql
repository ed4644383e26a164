-- The sizes of the relations that a load reads, the largest first. %(relids)s: array of their oids.
-- Returns: schema; name; bytes (with partitions and children); pages; whether ranges of its pages can be read by ctid. They can if the relation is
-- a plain heap without children, the caller may read all its rows, and the server is PostgreSQL 14 or later (earlier ones scan the whole table).
WITH RECURSIVE tree AS (
    SELECT r.oid AS root, r.oid
    FROM pg_catalog.unnest(%(relids)s::oid[]) AS r (oid)
    UNION
    SELECT t.root, i.inhrelid
    FROM tree AS t
    JOIN pg_catalog.pg_inherits AS i ON i.inhparent = t.oid
), sized AS (
    SELECT t.root, sum(pg_catalog.pg_relation_size(t.oid))::int8 AS bytes, count(*) AS members
    FROM tree AS t
    GROUP BY t.root
)
SELECT
    n.nspname,
    c.relname,
    coalesce(s.bytes, 0),
    coalesce(s.bytes, 0) / pg_catalog.current_setting('block_size')::int8,
    c.relkind IN ('r', 'm')
        AND s.members = 1
        AND coalesce(a.amname = 'heap', false)
        AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
        AND pg_catalog.current_setting('server_version_num')::int4 >= 140000
FROM sized AS s
JOIN pg_catalog.pg_class AS c ON c.oid = s.root
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_am AS a ON a.oid = c.relam
WHERE c.relkind IN ('r', 'm', 'p')
ORDER BY 3 DESC, c.oid
