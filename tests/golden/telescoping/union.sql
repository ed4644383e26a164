SELECT customer.id,
    customer.name
   FROM shop.customer
UNION ALL (
         SELECT sale.id,
            sale.note AS name
           FROM shop.sale
        UNION ALL
         SELECT 1 AS id,
            'x'::text AS name
)

-- term 1: customer
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) (SELECT customer.id AS "id", customer.name AS "name", customer."__pgt_w" AS "__pgt_w"
  FROM (SELECT *
  FROM "__pgt_d0") AS customer)
  UNION ALL (SELECT "q".*, 1 AS "__pgt_w"
  FROM ((SELECT sale.id AS "id", sale.note AS "name"
  FROM (SELECT t."id" AS "id", t."customer_id" AS "customer_id", t."qty" AS "qty", t."price" AS "price", t."at" AS "at", t."note" AS "note", t."tags" AS "tags", t."ok" AS "ok"
  FROM "shop"."sale" AS t) AS sale)
  UNION ALL (SELECT 1 AS "id", 'x'::text AS "name")) AS "q"
  WHERE false);

-- term 2: sale
WITH "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "customer_id", c.c3 AS "qty", c.c4 AS "price", c.c5 AS "at", c.c6 AS "note", c.c7 AS "tags", c.c8 AS "ok", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_1" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) (SELECT "q".*, 1 AS "__pgt_w"
  FROM (SELECT customer.id AS "id", customer.name AS "name"
  FROM (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS customer) AS "q"
  WHERE false)
  UNION ALL ((SELECT sale.id AS "id", sale.note AS "name", sale."__pgt_w" AS "__pgt_w"
  FROM (SELECT *
  FROM "__pgt_d1") AS sale)
  UNION ALL (SELECT "q".*, 1 AS "__pgt_w"
  FROM (SELECT 1 AS "id", 'x'::text AS "name") AS "q"
  WHERE false));

-- around pending changes
(SELECT customer.id AS "id", customer.name AS "name"
  FROM (SELECT n."id"::integer AS "id", n."name"::text AS "name", n."region"::text AS "region"
  FROM (SELECT b."id"::text, b."name"::text, b."region"::text, sum(b."__pgt_w")
  FROM (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region", 1 AS "__pgt_w"
  FROM "shop"."customer" AS t
  UNION ALL SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T') AS b
  GROUP BY b."id"::text, b."name"::text, b."region"::text
  HAVING sum(b."__pgt_w") > 0) AS n("id", "name", "region", "__pgt_w"), generate_series(1, n."__pgt_w")) AS customer)
  UNION ALL ((SELECT sale.id AS "id", sale.note AS "name"
  FROM (SELECT n."id"::integer AS "id", n."customer_id"::integer AS "customer_id", n."qty"::integer AS "qty", n."price"::numeric(10,2) AS "price", n."at"::timestamp with time zone AS "at", n."note"::text AS "note", n."tags"::text[] AS "tags", n."ok"::boolean AS "ok"
  FROM (SELECT b."id"::text, b."customer_id"::text, b."qty"::text, b."price"::text, b."at"::text, b."note"::text, b."tags"::text, b."ok"::text, sum(b."__pgt_w")
  FROM (SELECT t."id" AS "id", t."customer_id" AS "customer_id", t."qty" AS "qty", t."price" AS "price", t."at" AS "at", t."note" AS "note", t."tags" AS "tags", t."ok" AS "ok", 1 AS "__pgt_w"
  FROM "shop"."sale" AS t
  UNION ALL SELECT c.c1 AS "id", c.c2 AS "customer_id", c.c3 AS "qty", c.c4 AS "price", c.c5 AS "at", c.c6 AS "note", c.c7 AS "tags", c.c8 AS "ok", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_1" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T') AS b
  GROUP BY b."id"::text, b."customer_id"::text, b."qty"::text, b."price"::text, b."at"::text, b."note"::text, b."tags"::text, b."ok"::text
  HAVING sum(b."__pgt_w") > 0) AS n("id", "customer_id", "qty", "price", "at", "note", "tags", "ok", "__pgt_w"), generate_series(1, n."__pgt_w")) AS sale)
  UNION ALL (SELECT 1 AS "id", 'x'::text AS "name"));
