SELECT id,
    (qty * 2) AS d
   FROM shop.sale
  WHERE ((qty > 2) AND (note ~~ 'a%'::text))

-- term 1: sale
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "customer_id", c.c3 AS "qty", c.c4 AS "price", c.c5 AS "at", c.c6 AS "note", c.c7 AS "tags", c.c8 AS "ok", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_1" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT id AS "id", (qty * 2) AS "d", sale."__pgt_w" AS "__pgt_w"
  FROM (SELECT *
  FROM "__pgt_d0") AS sale
  WHERE ((qty > 2) AND (note ~~ 'a%'::text));

-- around pending changes
SELECT id AS "id", (qty * 2) AS "d"
  FROM (SELECT n."id"::integer AS "id", n."customer_id"::integer AS "customer_id", n."qty"::integer AS "qty", n."price"::numeric(10,2) AS "price", n."at"::timestamp with time zone AS "at", n."note"::text AS "note", n."tags"::text[] AS "tags", n."ok"::boolean AS "ok"
  FROM (SELECT b."id"::text, b."customer_id"::text, b."qty"::text, b."price"::text, b."at"::text, b."note"::text, b."tags"::text, b."ok"::text, sum(b."__pgt_w")
  FROM (SELECT t."id" AS "id", t."customer_id" AS "customer_id", t."qty" AS "qty", t."price" AS "price", t."at" AS "at", t."note" AS "note", t."tags" AS "tags", t."ok" AS "ok", 1 AS "__pgt_w"
  FROM "shop"."sale" AS t
  UNION ALL SELECT c.c1 AS "id", c.c2 AS "customer_id", c.c3 AS "qty", c.c4 AS "price", c.c5 AS "at", c.c6 AS "note", c.c7 AS "tags", c.c8 AS "ok", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_1" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T') AS b
  GROUP BY b."id"::text, b."customer_id"::text, b."qty"::text, b."price"::text, b."at"::text, b."note"::text, b."tags"::text, b."ok"::text
  HAVING sum(b."__pgt_w") > 0) AS n("id", "customer_id", "qty", "price", "at", "note", "tags", "ok", "__pgt_w"), generate_series(1, n."__pgt_w")) AS sale
  WHERE ((qty > 2) AND (note ~~ 'a%'::text));
