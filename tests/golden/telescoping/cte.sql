WITH a AS (
         SELECT sale.id,
            sale.qty
           FROM shop.sale
        ), b(x, y) AS MATERIALIZED (
         SELECT a.id,
            a.qty
           FROM a
          WHERE (a.qty > 1)
        )
 SELECT b.x,
    z.y
   FROM (b
     JOIN b z ON ((z.x = b.y)))

-- term 1: sale
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "customer_id", c.c3 AS "qty", c.c4 AS "price", c.c5 AS "at", c.c6 AS "note", c.c7 AS "tags", c.c8 AS "ok", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_1" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT b.x AS "x", z.y AS "y", b."__pgt_w" AS "__pgt_w"
  FROM ((SELECT a.id AS "x", a.qty AS "y", a."__pgt_w" AS "__pgt_w"
  FROM (SELECT sale.id AS "id", sale.qty AS "qty", sale."__pgt_w" AS "__pgt_w"
  FROM (SELECT *
  FROM "__pgt_d0") AS sale) AS a
  WHERE (a.qty > 1)) AS b
  JOIN (SELECT a.id AS "x", a.qty AS "y"
  FROM (SELECT sale.id AS "id", sale.qty AS "qty"
  FROM (SELECT t."id" AS "id", t."customer_id" AS "customer_id", t."qty" AS "qty", t."price" AS "price", t."at" AS "at", t."note" AS "note", t."tags" AS "tags", t."ok" AS "ok"
  FROM "shop"."sale" AS t) AS sale) AS a
  WHERE (a.qty > 1)) AS z ON ((z.x = b.y)));

-- term 2: sale
WITH "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "customer_id", c.c3 AS "qty", c.c4 AS "price", c.c5 AS "at", c.c6 AS "note", c.c7 AS "tags", c.c8 AS "ok", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_1" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT b.x AS "x", z.y AS "y", z."__pgt_w" AS "__pgt_w"
  FROM ((SELECT a.id AS "x", a.qty AS "y"
  FROM (SELECT sale.id AS "id", sale.qty AS "qty"
  FROM (SELECT t."id" AS "id", t."customer_id" AS "customer_id", t."qty" AS "qty", t."price" AS "price", t."at" AS "at", t."note" AS "note", t."tags" AS "tags", t."ok" AS "ok"
  FROM "shop"."sale" AS t) AS sale) AS a
  WHERE (a.qty > 1)) AS b
  JOIN (SELECT a.id AS "x", a.qty AS "y", a."__pgt_w" AS "__pgt_w"
  FROM (SELECT sale.id AS "id", sale.qty AS "qty", sale."__pgt_w" AS "__pgt_w"
  FROM (SELECT *
  FROM "__pgt_d1") AS sale) AS a
  WHERE (a.qty > 1)) AS z ON ((z.x = b.y)));

-- term 3: sale and sale
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "customer_id", c.c3 AS "qty", c.c4 AS "price", c.c5 AS "at", c.c6 AS "note", c.c7 AS "tags", c.c8 AS "ok", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_1" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7), "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "customer_id", c.c3 AS "qty", c.c4 AS "price", c.c5 AS "at", c.c6 AS "note", c.c7 AS "tags", c.c8 AS "ok", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_1" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT b.x AS "x", z.y AS "y", b."__pgt_w" * z."__pgt_w" AS "__pgt_w"
  FROM ((SELECT a.id AS "x", a.qty AS "y", a."__pgt_w" AS "__pgt_w"
  FROM (SELECT sale.id AS "id", sale.qty AS "qty", sale."__pgt_w" AS "__pgt_w"
  FROM (SELECT *
  FROM "__pgt_d0") AS sale) AS a
  WHERE (a.qty > 1)) AS b
  JOIN (SELECT a.id AS "x", a.qty AS "y", a."__pgt_w" AS "__pgt_w"
  FROM (SELECT sale.id AS "id", sale.qty AS "qty", sale."__pgt_w" AS "__pgt_w"
  FROM (SELECT *
  FROM "__pgt_d1") AS sale) AS a
  WHERE (a.qty > 1)) AS z ON ((z.x = b.y)));

-- around pending changes
SELECT b.x AS "x", z.y AS "y"
  FROM ((SELECT a.id AS "x", a.qty AS "y"
  FROM (SELECT sale.id AS "id", sale.qty AS "qty"
  FROM (SELECT n."id"::integer AS "id", n."customer_id"::integer AS "customer_id", n."qty"::integer AS "qty", n."price"::numeric(10,2) AS "price", n."at"::timestamp with time zone AS "at", n."note"::text AS "note", n."tags"::text[] AS "tags", n."ok"::boolean AS "ok"
  FROM (SELECT b."id"::text, b."customer_id"::text, b."qty"::text, b."price"::text, b."at"::text, b."note"::text, b."tags"::text, b."ok"::text, sum(b."__pgt_w")
  FROM (SELECT t."id" AS "id", t."customer_id" AS "customer_id", t."qty" AS "qty", t."price" AS "price", t."at" AS "at", t."note" AS "note", t."tags" AS "tags", t."ok" AS "ok", 1 AS "__pgt_w"
  FROM "shop"."sale" AS t
  UNION ALL SELECT c.c1 AS "id", c.c2 AS "customer_id", c.c3 AS "qty", c.c4 AS "price", c.c5 AS "at", c.c6 AS "note", c.c7 AS "tags", c.c8 AS "ok", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_1" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T') AS b
  GROUP BY b."id"::text, b."customer_id"::text, b."qty"::text, b."price"::text, b."at"::text, b."note"::text, b."tags"::text, b."ok"::text
  HAVING sum(b."__pgt_w") > 0) AS n("id", "customer_id", "qty", "price", "at", "note", "tags", "ok", "__pgt_w"), generate_series(1, n."__pgt_w")) AS sale) AS a
  WHERE (a.qty > 1)) AS b
  JOIN (SELECT a.id AS "x", a.qty AS "y"
  FROM (SELECT sale.id AS "id", sale.qty AS "qty"
  FROM (SELECT n."id"::integer AS "id", n."customer_id"::integer AS "customer_id", n."qty"::integer AS "qty", n."price"::numeric(10,2) AS "price", n."at"::timestamp with time zone AS "at", n."note"::text AS "note", n."tags"::text[] AS "tags", n."ok"::boolean AS "ok"
  FROM (SELECT b."id"::text, b."customer_id"::text, b."qty"::text, b."price"::text, b."at"::text, b."note"::text, b."tags"::text, b."ok"::text, sum(b."__pgt_w")
  FROM (SELECT t."id" AS "id", t."customer_id" AS "customer_id", t."qty" AS "qty", t."price" AS "price", t."at" AS "at", t."note" AS "note", t."tags" AS "tags", t."ok" AS "ok", 1 AS "__pgt_w"
  FROM "shop"."sale" AS t
  UNION ALL SELECT c.c1 AS "id", c.c2 AS "customer_id", c.c3 AS "qty", c.c4 AS "price", c.c5 AS "at", c.c6 AS "note", c.c7 AS "tags", c.c8 AS "ok", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_1" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T') AS b
  GROUP BY b."id"::text, b."customer_id"::text, b."qty"::text, b."price"::text, b."at"::text, b."note"::text, b."tags"::text, b."ok"::text
  HAVING sum(b."__pgt_w") > 0) AS n("id", "customer_id", "qty", "price", "at", "note", "tags", "ok", "__pgt_w"), generate_series(1, n."__pgt_w")) AS sale) AS a
  WHERE (a.qty > 1)) AS z ON ((z.x = b.y)));
