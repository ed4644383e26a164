SELECT a.id,
    c.id AS other
   FROM ((shop.customer a
     JOIN shop.customer b ON ((a.region = b.region)))
     JOIN shop.customer c ON ((c.id < b.id)))

-- term 1: customer
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", a."__pgt_w" AS "__pgt_w"
  FROM (((SELECT *
  FROM "__pgt_d0") AS a
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS b ON ((a.region = b.region)))
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS c ON ((c.id < b.id)));

-- term 2: customer
WITH "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", b."__pgt_w" AS "__pgt_w"
  FROM (((SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS a
  JOIN (SELECT *
  FROM "__pgt_d1") AS b ON ((a.region = b.region)))
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS c ON ((c.id < b.id)));

-- term 3: customer
WITH "__pgt_d2" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", c."__pgt_w" AS "__pgt_w"
  FROM (((SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS a
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS b ON ((a.region = b.region)))
  JOIN (SELECT *
  FROM "__pgt_d2") AS c ON ((c.id < b.id)));

-- term 4: customer and customer
WITH "__pgt_n0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7), "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", a."__pgt_w" * b."__pgt_w" AS "__pgt_w"
  FROM (((SELECT *
  FROM "__pgt_n0") AS a
  JOIN (SELECT *
  FROM "__pgt_d1") AS b ON ((a.region = b.region)))
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS c ON ((c.id < b.id)));

-- term 5: customer and customer
WITH "__pgt_n0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7), "__pgt_d2" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", a."__pgt_w" * c."__pgt_w" AS "__pgt_w"
  FROM (((SELECT *
  FROM "__pgt_n0") AS a
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS b ON ((a.region = b.region)))
  JOIN (SELECT *
  FROM "__pgt_d2") AS c ON ((c.id < b.id)));

-- term 6: customer and customer
WITH "__pgt_n1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7), "__pgt_d2" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", b."__pgt_w" * c."__pgt_w" AS "__pgt_w"
  FROM (((SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS a
  JOIN (SELECT *
  FROM "__pgt_n1") AS b ON ((a.region = b.region)))
  JOIN (SELECT *
  FROM "__pgt_d2") AS c ON ((c.id < b.id)));

-- term 7: customer and customer and customer
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7), "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7), "__pgt_d2" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM pgtrickle_changes.changes_2 AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", a."__pgt_w" * b."__pgt_w" * c."__pgt_w" AS "__pgt_w"
  FROM (((SELECT *
  FROM "__pgt_d0") AS a
  JOIN (SELECT *
  FROM "__pgt_d1") AS b ON ((a.region = b.region)))
  JOIN (SELECT *
  FROM "__pgt_d2") AS c ON ((c.id < b.id)));

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
  HAVING sum(b.n) > 0) AS b, unnest(array_fill(1, ARRAY[b.n::int4]))) SELECT a.id AS "id", c.id AS "other"
  FROM (((SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region", true AS "__pgt_now"
  FROM "shop"."customer" AS t
  UNION ALL SELECT b.c1 AS "id", b.c2 AS "name", b.c3 AS "region", false AS "__pgt_now"
  FROM (SELECT *
  FROM "__pgt_sb1" OFFSET 0) AS b) AS a
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region", true AS "__pgt_now"
  FROM "shop"."customer" AS t
  UNION ALL SELECT b.c1 AS "id", b.c2 AS "name", b.c3 AS "region", false AS "__pgt_now"
  FROM (SELECT *
  FROM "__pgt_sb1" OFFSET 0) AS b) AS b ON ((a.region = b.region)))
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region", true AS "__pgt_now"
  FROM "shop"."customer" AS t
  UNION ALL SELECT b.c1 AS "id", b.c2 AS "name", b.c3 AS "region", false AS "__pgt_now"
  FROM (SELECT *
  FROM "__pgt_sb1" OFFSET 0) AS b) AS c ON ((c.id < b.id)))
  WHERE (((NOT a."__pgt_now" OR NOT ((ARRAY[a."id"::text, a."name"::text, a."region"::text]::text[]::text) IN (SELECT w.k0
  FROM "__pgt_sw0" AS w)))) AND (NOT b."__pgt_now" OR NOT ((ARRAY[b."id"::text, b."name"::text, b."region"::text]::text[]::text) IN (SELECT w.k0
  FROM "__pgt_sw0" AS w)))) AND (NOT c."__pgt_now" OR NOT ((ARRAY[c."id"::text, c."name"::text, c."region"::text]::text[]::text) IN (SELECT w.k0
  FROM "__pgt_sw0" AS w)));
