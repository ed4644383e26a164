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
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7) (SELECT customer.id AS "id", customer.name AS "name", customer."__pgt_w" AS "__pgt_w"
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
  FROM pgtrickle_changes.changes_1 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7) (SELECT "q".*, 1 AS "__pgt_w"
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
WITH "__pgt_sw0" AS MATERIALIZED (SELECT DISTINCT ARRAY[c.c1::text, c.c2::text, c.c3::text]::text[]::text AS k0
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T'), "__pgt_sb1" AS MATERIALIZED (SELECT (b.r::text[])[1]::integer AS c1, (b.r::text[])[2]::text AS c2, (b.r::text[])[3]::text AS c3
  FROM (SELECT b.r, sum(b.n) AS n
  FROM (SELECT ARRAY[t."id"::text, t."name"::text, t."region"::text]::text[]::text AS r, 1 AS n
  FROM "shop"."customer" AS t
  WHERE (ARRAY[t."id"::text, t."name"::text, t."region"::text]::text[]::text) IN (SELECT w.k0
  FROM "__pgt_sw0" AS w)
  UNION ALL SELECT ARRAY[c.c1::text, c.c2::text, c.c3::text]::text[]::text, CASE c.action WHEN 'D' THEN 1 ELSE -1 END
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T') AS b
  GROUP BY b.r
  HAVING sum(b.n) > 0) AS b, unnest(array_fill(1, ARRAY[b.n::int4]))), "__pgt_sw2" AS MATERIALIZED (SELECT DISTINCT c.c1 AS k0
  FROM pgtrickle_changes.changes_1 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T'), "__pgt_sb3" AS MATERIALIZED (SELECT (b.r::text[])[1]::integer AS c1, (b.r::text[])[2]::integer AS c2, (b.r::text[])[3]::integer AS c3, (b.r::text[])[4]::numeric(10,2) AS c4, (b.r::text[])[5]::timestamp with time zone AS c5, (b.r::text[])[6]::text AS c6, (b.r::text[])[7]::text[] AS c7, (b.r::text[])[8]::boolean AS c8
  FROM (SELECT b.r, sum(b.n) AS n
  FROM (SELECT ARRAY[t."id"::text, t."customer_id"::text, t."qty"::text, t."price"::text, t."at"::text, t."note"::text, t."tags"::text, t."ok"::text]::text[]::text AS r, 1 AS n
  FROM "shop"."sale" AS t
  WHERE (t."id") IN (SELECT w.k0
  FROM "__pgt_sw2" AS w)
  UNION ALL SELECT ARRAY[c.c1::text, c.c2::text, c.c3::text, c.c4::text, c.c5::text, c.c6::text, c.c7::text, c.c8::text]::text[]::text, CASE c.action WHEN 'D' THEN 1 ELSE -1 END
  FROM pgtrickle_changes.changes_1 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T') AS b
  GROUP BY b.r
  HAVING sum(b.n) > 0) AS b, unnest(array_fill(1, ARRAY[b.n::int4]))) (SELECT customer.id AS "id", customer.name AS "name"
  FROM (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region", true AS "__pgt_now"
  FROM "shop"."customer" AS t
  UNION ALL SELECT b.c1 AS "id", b.c2 AS "name", b.c3 AS "region", false AS "__pgt_now"
  FROM (SELECT *
  FROM "__pgt_sb1" OFFSET 0) AS b) AS customer
  WHERE (NOT customer."__pgt_now" OR NOT ((ARRAY[customer."id"::text, customer."name"::text, customer."region"::text]::text[]::text) IN (SELECT w.k0
  FROM "__pgt_sw0" AS w))))
  UNION ALL ((SELECT sale.id AS "id", sale.note AS "name"
  FROM (SELECT t."id" AS "id", t."customer_id" AS "customer_id", t."qty" AS "qty", t."price" AS "price", t."at" AS "at", t."note" AS "note", t."tags" AS "tags", t."ok" AS "ok", true AS "__pgt_now"
  FROM "shop"."sale" AS t
  UNION ALL SELECT b.c1 AS "id", b.c2 AS "customer_id", b.c3 AS "qty", b.c4 AS "price", b.c5 AS "at", b.c6 AS "note", b.c7 AS "tags", b.c8 AS "ok", false AS "__pgt_now"
  FROM (SELECT *
  FROM "__pgt_sb3" OFFSET 0) AS b) AS sale
  WHERE (NOT sale."__pgt_now" OR NOT ((sale."id") IN (SELECT w.k0
  FROM "__pgt_sw2" AS w))))
  UNION ALL (SELECT 1 AS "id", 'x'::text AS "name"));
