SELECT "group",
    "Mixed Case" AS "AS",
    "quo""te",
    "select" AS "from"
   FROM shop."Odd Table" o
  WHERE ("Mixed Case" <> 'it''s; FROM'::text)

-- term 1: Odd Table
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "group", c.c2 AS "Mixed Case", c.c3 AS "quo""te", c.c4 AS "select", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_3 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7) SELECT "group" AS "group", "Mixed Case" AS "AS", "quo""te" AS "quo""te", "select" AS "from", o."__pgt_w" AS "__pgt_w"
  FROM (SELECT *
  FROM "__pgt_d0") AS o
  WHERE ("Mixed Case" <> 'it''s; FROM'::text);

-- around pending changes
WITH "__pgt_sw0" AS MATERIALIZED (SELECT DISTINCT ARRAY[c.c1::text, c.c2::text, c.c3::text, c.c4::text]::text[]::text AS k0
  FROM pgtrickle_changes.changes_3 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T'), "__pgt_sb1" AS MATERIALIZED (SELECT (b.r::text[])[1]::integer AS c1, (b.r::text[])[2]::text AS c2, (b.r::text[])[3]::integer AS c3, (b.r::text[])[4]::integer AS c4
  FROM (SELECT b.r, sum(b.n) AS n
  FROM (SELECT ARRAY[t."group"::text, t."Mixed Case"::text, t."quo""te"::text, t."select"::text]::text[]::text AS r, 1 AS n
  FROM "shop"."Odd Table" AS t
  WHERE (ARRAY[t."group"::text, t."Mixed Case"::text, t."quo""te"::text, t."select"::text]::text[]::text) IN (SELECT w.k0
  FROM "__pgt_sw0" AS w)
  UNION ALL SELECT ARRAY[c.c1::text, c.c2::text, c.c3::text, c.c4::text]::text[]::text, CASE c.action WHEN 'D' THEN 1 ELSE -1 END
  FROM pgtrickle_changes.changes_3 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T') AS b
  GROUP BY b.r
  HAVING sum(b.n) > 0) AS b, unnest(array_fill(1, ARRAY[b.n::int4]))) SELECT "group" AS "group", "Mixed Case" AS "AS", "quo""te" AS "quo""te", "select" AS "from"
  FROM (SELECT t."group" AS "group", t."Mixed Case" AS "Mixed Case", t."quo""te" AS "quo""te", t."select" AS "select", true AS "__pgt_now"
  FROM "shop"."Odd Table" AS t
  UNION ALL SELECT b.c1 AS "group", b.c2 AS "Mixed Case", b.c3 AS "quo""te", b.c4 AS "select", false AS "__pgt_now"
  FROM (SELECT *
  FROM "__pgt_sb1" OFFSET 0) AS b) AS o
  WHERE (("Mixed Case" <> 'it''s; FROM'::text)) AND (NOT o."__pgt_now" OR NOT ((ARRAY[o."group"::text, o."Mixed Case"::text, o."quo""te"::text, o."select"::text]::text[]::text) IN (SELECT w.k0
  FROM "__pgt_sw0" AS w)));
