SELECT "group",
    "Mixed Case" AS "AS",
    "quo""te",
    "select" AS "from"
   FROM shop."Odd Table" o
  WHERE ("Mixed Case" <> 'it''s; FROM'::text)

-- term 1: Odd Table
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "group", c.c2 AS "Mixed Case", c.c3 AS "quo""te", c.c4 AS "select", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_3" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT "group" AS "group", "Mixed Case" AS "AS", "quo""te" AS "quo""te", "select" AS "from", o."__pgt_w" AS "__pgt_w"
  FROM (SELECT *
  FROM "__pgt_d0") AS o
  WHERE ("Mixed Case" <> 'it''s; FROM'::text);

-- around pending changes
WITH "__pgt_sw0" AS MATERIALIZED (SELECT ARRAY[c.c1::text, c.c2::text, c.c3::text, c.c4::text]::text[]::text AS r, sum(CASE c.action WHEN 'I' THEN 1 ELSE -1 END) AS n
  FROM "pgtrickle_changes"."changes_3" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T'
  GROUP BY 1
  HAVING sum(CASE c.action WHEN 'I' THEN 1 ELSE -1 END) <> 0), "__pgt_sb1" AS MATERIALIZED (SELECT (b.r::text[])[1]::integer AS c1, (b.r::text[])[2]::text AS c2, (b.r::text[])[3]::integer AS c3, (b.r::text[])[4]::integer AS c4
  FROM (SELECT w.r, -w.n AS n
  FROM "__pgt_sw0" AS w
  WHERE w.n < 0
  UNION ALL SELECT w.r, count(*) - w.n AS n
  FROM "__pgt_sw0" AS w
  JOIN "shop"."Odd Table" AS t ON ARRAY[t."group"::text, t."Mixed Case"::text, t."quo""te"::text, t."select"::text]::text[]::text = w.r
  WHERE w.n > 0
  GROUP BY w.r, w.n) AS b, generate_series(1, b.n)) SELECT "group" AS "group", "Mixed Case" AS "AS", "quo""te" AS "quo""te", "select" AS "from"
  FROM (SELECT t."group" AS "group", t."Mixed Case" AS "Mixed Case", t."quo""te" AS "quo""te", t."select" AS "select"
  FROM "shop"."Odd Table" AS t
  WHERE NOT (ARRAY[t."group"::text, t."Mixed Case"::text, t."quo""te"::text, t."select"::text]::text[]::text IN (SELECT w.r
  FROM "__pgt_sw0" AS w
  WHERE w.n > 0))
  UNION ALL SELECT b.c1 AS "group", b.c2 AS "Mixed Case", b.c3 AS "quo""te", b.c4 AS "select"
  FROM "__pgt_sb1" AS b) AS o
  WHERE ("Mixed Case" <> 'it''s; FROM'::text);
