-- Statements that give all objects of pgtrickle to a role. %(role)s: its name; it exists.
-- Returns: the statement; the table that it locks against everybody (quoted qualified name), or NULL.
-- Sequences of identity columns, indexes and row types follow their table. Functions of schema pgtrickle_run belong to authors.
WITH heir AS (
    SELECT r.oid, r.rolname FROM pg_catalog.pg_roles AS r WHERE r.rolname = %(role)s
), ours AS (
    SELECT n.oid, n.nspname, n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname IN ('pgtrickle', 'pgtrickle_changes', 'pgtrickle_run')
)
SELECT format('ALTER SCHEMA %%I OWNER TO %%I', o.nspname, h.rolname), NULL
FROM ours AS o, heir AS h
WHERE o.nspowner <> h.oid
UNION ALL
SELECT
    format(
        'ALTER %%s %%I.%%I OWNER TO %%I', CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
        n.nspname, c.relname, h.rolname
    ),
    CASE WHEN c.relkind IN ('r', 'p') THEN format('%%I.%%I', n.nspname, c.relname) END
FROM heir AS h, pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S')
  AND c.relowner <> h.oid
  AND (c.relnamespace IN (SELECT o.oid FROM ours AS o) OR c.oid IN (SELECT st.pgt_relid FROM pgtrickle.pgt_stream_tables AS st)
       OR c.oid IN (SELECT i.inhrelid FROM pgtrickle.pgt_stream_tables AS st JOIN pg_catalog.pg_inherits AS i ON i.inhparent = st.pgt_relid
                    WHERE st.partition_by IS NOT NULL))
  AND NOT EXISTS (
      SELECT FROM pg_catalog.pg_depend AS d
      WHERE c.relkind = 'S' AND d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')
  )
UNION ALL
SELECT format('ALTER ROUTINE %%s OWNER TO %%I', p.oid::regprocedure, h.rolname), NULL
FROM heir AS h, pg_catalog.pg_proc AS p
JOIN ours AS o ON o.oid = p.pronamespace AND o.nspname <> 'pgtrickle_run'
WHERE p.proowner <> h.oid
UNION ALL
SELECT format('ALTER TYPE %%I.%%I OWNER TO %%I', o.nspname, t.typname, h.rolname), NULL
FROM heir AS h, pg_catalog.pg_type AS t
JOIN ours AS o ON o.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_class AS c ON c.oid = t.typrelid
WHERE t.typowner <> h.oid AND (t.typtype IN ('d', 'e', 'r') OR c.relkind = 'c')
UNION ALL
SELECT format('ALTER PUBLICATION %%I OWNER TO %%I', g.pubname, h.rolname), NULL
FROM heir AS h, pgtrickle.pgt_publications AS p
JOIN pg_catalog.pg_publication AS g ON g.pubname = p.publication
WHERE g.pubowner <> h.oid
