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
WITH "__pgt_n0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7), "__pgt_d1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", a."__pgt_w" * b."__pgt_w" AS "__pgt_w"
  FROM (((SELECT *
  FROM "__pgt_n0") AS a
  JOIN (SELECT *
  FROM "__pgt_d1") AS b ON ((a.region = b.region)))
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS c ON ((c.id < b.id)));

-- term 5: customer and customer
WITH "__pgt_n0" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7), "__pgt_d2" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", a."__pgt_w" * c."__pgt_w" AS "__pgt_w"
  FROM (((SELECT *
  FROM "__pgt_n0") AS a
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS b ON ((a.region = b.region)))
  JOIN (SELECT *
  FROM "__pgt_d2") AS c ON ((c.id < b.id)));

-- term 6: customer and customer
WITH "__pgt_n1" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'D' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7), "__pgt_d2" AS MATERIALIZED (SELECT c.c1 AS "id", c.c2 AS "name", c.c3 AS "region", CASE c.action WHEN 'I' THEN 1 ELSE -1 END AS "__pgt_w"
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T' LIMIT 7) SELECT a.id AS "id", c.id AS "other", b."__pgt_w" * c."__pgt_w" AS "__pgt_w"
  FROM (((SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t) AS a
  JOIN (SELECT *
  FROM "__pgt_n1") AS b ON ((a.region = b.region)))
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
WITH "__pgt_sw0" AS MATERIALIZED (SELECT ARRAY[c.c1::text, c.c2::text, c.c3::text]::text[]::text AS r, sum(CASE c.action WHEN 'I' THEN 1 ELSE -1 END) AS n
  FROM "pgtrickle_changes"."changes_2" AS c
  WHERE ((c.xid >= '105'::xid8 AND c.xid < '200'::xid8) OR c.xid = ANY ('{102}'::xid8[])) AND pg_catalog.pg_visible_in_snapshot(c.xid, '200:200:'::pg_snapshot) AND c.action <> 'T'
  GROUP BY 1
  HAVING sum(CASE c.action WHEN 'I' THEN 1 ELSE -1 END) <> 0), "__pgt_sb1" AS MATERIALIZED (SELECT (b.r::text[])[1]::integer AS c1, (b.r::text[])[2]::text AS c2, (b.r::text[])[3]::text AS c3
  FROM (SELECT w.r, -w.n AS n
  FROM "__pgt_sw0" AS w
  WHERE w.n < 0
  UNION ALL SELECT w.r, count(*) - w.n AS n
  FROM "__pgt_sw0" AS w
  JOIN "shop"."customer" AS t ON ARRAY[t."id"::text, t."name"::text, t."region"::text]::text[]::text = w.r
  WHERE w.n > 0
  GROUP BY w.r, w.n) AS b, generate_series(1, b.n)) SELECT a.id AS "id", c.id AS "other"
  FROM (((SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t
  WHERE NOT (ARRAY[t."id"::text, t."name"::text, t."region"::text]::text[]::text IN (SELECT w.r
  FROM "__pgt_sw0" AS w
  WHERE w.n > 0))
  UNION ALL SELECT b.c1 AS "id", b.c2 AS "name", b.c3 AS "region"
  FROM "__pgt_sb1" AS b) AS a
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t
  WHERE NOT (ARRAY[t."id"::text, t."name"::text, t."region"::text]::text[]::text IN (SELECT w.r
  FROM "__pgt_sw0" AS w
  WHERE w.n > 0))
  UNION ALL SELECT b.c1 AS "id", b.c2 AS "name", b.c3 AS "region"
  FROM "__pgt_sb1" AS b) AS b ON ((a.region = b.region)))
  JOIN (SELECT t."id" AS "id", t."name" AS "name", t."region" AS "region"
  FROM "shop"."customer" AS t
  WHERE NOT (ARRAY[t."id"::text, t."name"::text, t."region"::text]::text[]::text IN (SELECT w.r
  FROM "__pgt_sw0" AS w
  WHERE w.n > 0))
  UNION ALL SELECT b.c1 AS "id", b.c2 AS "name", b.c3 AS "region"
  FROM "__pgt_sb1" AS b) AS c ON ((c.id < b.id)));
