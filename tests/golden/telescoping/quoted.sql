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
SELECT "group" AS "group", "Mixed Case" AS "AS", "quo""te" AS "quo""te", "select" AS "from"
  FROM (SELECT n."group"::integer AS "group", n."Mixed Case"::text AS "Mixed Case", n."quo""te"::integer AS "quo""te", n."select"::integer AS "select"
  FROM (SELECT b."group"::text, b."Mixed Case"::text, b."quo""te"::text, b."select"::text, sum(b."__pgt_w")
  FROM (SELECT t."group" AS "group", t."Mixed Case" AS "Mixed Case", t."quo""te" AS "quo""te", t."select" AS "select", 1 AS "__pgt_w"
  FROM "shop"."Odd Table" AS t
  UNION ALL SELECT c.c1 AS "group", c.c2 AS "Mixed Case", c.c3 AS "quo""te", c.c4 AS "select", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_3" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T') AS b
  GROUP BY b."group"::text, b."Mixed Case"::text, b."quo""te"::text, b."select"::text
  HAVING sum(b."__pgt_w") > 0) AS n("group", "Mixed Case", "quo""te", "select", "__pgt_w"), generate_series(1, n."__pgt_w")) AS o
  WHERE ("Mixed Case" <> 'it''s; FROM'::text);
