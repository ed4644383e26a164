SELECT a.id,
    c.id AS other
   FROM ((shop.customer a
     JOIN shop.customer b ON ((a.region = b.region)))
     JOIN shop.customer c ON ((c.id < b.id)))

-- term 1: customer
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", a."__pgt_w" AS "__pgt_w"
  FROM (((SELECT *
  FROM "__pgt_d0") AS a
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS b ON ((a.region = b.region)))
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS c ON ((c.id < b.id)));

-- term 2: customer
WITH "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", b."__pgt_w" AS "__pgt_w"
  FROM (((SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS a
  JOIN (SELECT *
  FROM "__pgt_d1") AS b ON ((a.region = b.region)))
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS c ON ((c.id < b.id)));

-- term 3: customer
WITH "__pgt_d2" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", c."__pgt_w" AS "__pgt_w"
  FROM (((SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS a
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS b ON ((a.region = b.region)))
  JOIN (SELECT *
  FROM "__pgt_d2") AS c ON ((c.id < b.id)));

-- term 4: customer and customer
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7), "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", a."__pgt_w" * b."__pgt_w" AS "__pgt_w"
  FROM (((SELECT *
  FROM "__pgt_d0") AS a
  JOIN (SELECT *
  FROM "__pgt_d1") AS b ON ((a.region = b.region)))
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS c ON ((c.id < b.id)));

-- term 5: customer and customer
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7), "__pgt_d2" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", a."__pgt_w" * c."__pgt_w" AS "__pgt_w"
  FROM (((SELECT *
  FROM "__pgt_d0") AS a
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS b ON ((a.region = b.region)))
  JOIN (SELECT *
  FROM "__pgt_d2") AS c ON ((c.id < b.id)));

-- term 6: customer and customer
WITH "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7), "__pgt_d2" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", b."__pgt_w" * c."__pgt_w" AS "__pgt_w"
  FROM (((SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS a
  JOIN (SELECT *
  FROM "__pgt_d1") AS b ON ((a.region = b.region)))
  JOIN (SELECT *
  FROM "__pgt_d2") AS c ON ((c.id < b.id)));

-- term 7: customer and customer and customer
WITH "__pgt_d0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7), "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7), "__pgt_d2" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", a."__pgt_w" * b."__pgt_w" * c."__pgt_w" AS "__pgt_w"
  FROM (((SELECT *
  FROM "__pgt_d0") AS a
  JOIN (SELECT *
  FROM "__pgt_d1") AS b ON ((a.region = b.region)))
  JOIN (SELECT *
  FROM "__pgt_d2") AS c ON ((c.id < b.id)));

-- around pending changes
SELECT a.id AS "id", c.id AS "other"
  FROM (((SELECT n."id"::integer AS "id", n."name"::text AS "name", n."region"::text AS "region"
  FROM (SELECT b."id"::text, b."name"::text, b."region"::text, sum(b."__pgt_w")
  FROM (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region", 1 AS "__pgt_w"
  FROM "shop"."customer" AS t
  UNION ALL SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T') AS b
  GROUP BY b."id"::text, b."name"::text, b."region"::text
  HAVING sum(b."__pgt_w") > 0) AS n("id", "name", "region", "__pgt_w"), generate_series(1, n."__pgt_w")) AS a
  JOIN (SELECT n."id"::integer AS "id", n."name"::text AS "name", n."region"::text AS "region"
  FROM (SELECT b."id"::text, b."name"::text, b."region"::text, sum(b."__pgt_w")
  FROM (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region", 1 AS "__pgt_w"
  FROM "shop"."customer" AS t
  UNION ALL SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T') AS b
  GROUP BY b."id"::text, b."name"::text, b."region"::text
  HAVING sum(b."__pgt_w") > 0) AS n("id", "name", "region", "__pgt_w"), generate_series(1, n."__pgt_w")) AS b ON ((a.region = b.region)))
  JOIN (SELECT n."id"::integer AS "id", n."name"::text AS "name", n."region"::text AS "region"
  FROM (SELECT b."id"::text, b."name"::text, b."region"::text, sum(b."__pgt_w")
  FROM (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region", 1 AS "__pgt_w"
  FROM "shop"."customer" AS t
  UNION ALL SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T') AS b
  GROUP BY b."id"::text, b."name"::text, b."region"::text
  HAVING sum(b."__pgt_w") > 0) AS n("id", "name", "region", "__pgt_w"), generate_series(1, n."__pgt_w")) AS c ON ((c.id < b.id)));
