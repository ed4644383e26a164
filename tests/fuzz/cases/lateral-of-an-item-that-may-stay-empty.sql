-- Which rows a LATERAL item touches was asked of t1, which the FULL JOIN fills up with NULLs where the item has had nothing: such rows stayed
-- setup
CREATE TABLE t2 (a int, b int NOT NULL, s text, n numeric(10,2));
CREATE TABLE t3 (id int PRIMARY KEY, t1_id int, s text, d date, xs int[], js jsonb);
CREATE TABLE edge (src int, dst int);
INSERT INTO t2 VALUES (NULL::int, 2, 'B c'::text, NULL::numeric(10,2)), (NULL::int, 1, 'a'::text, -1.25), (3, 0, 'a'::text, NULL::numeric(10,2)), (NULL::int, 2, 'B c'::text, -1.25), (0, 0, 'ab'::text, 0.00), (3, 3, 'B c'::text, NULL::numeric(10,2)), (3, 2, 'c'::text, 1.25), (1, 2, ''::text, -1.25), (NULL::int, 2, 'B c'::text, -1.25), (NULL::int, 2, 'B c'::text, NULL::numeric(10,2));
INSERT INTO t3 VALUES (4, 2, ''::text, DATE '2024-02-28', ARRAY[]::int[], '["y"]'::jsonb), (3, 3, 'b'::text, DATE '2024-01-02', ARRAY[2]::int[], NULL::jsonb), (11, NULL::int, 'c'::text, DATE '2024-02-28', ARRAY[1]::int[], '[2, 2]'::jsonb), (3, 2, 'a'::text, DATE '2024-01-02', ARRAY[3, 0]::int[], '[1, null, 1]'::jsonb), (5, 4, 'B c'::text, DATE '2024-02-28', NULL::int[], '[]'::jsonb), (1, 4, 'c'::text, DATE '2024-02-29', ARRAY[2]::int[], '[]'::jsonb), (12, 4, 'b'::text, NULL::date, NULL::int[], NULL::jsonb), (3, 3, 'b'::text, DATE '2024-01-02', ARRAY[2]::int[], NULL::jsonb), (1, 4, 'c'::text, DATE '2024-02-29', ARRAY[2]::int[], '[]'::jsonb) ON CONFLICT DO NOTHING;
INSERT INTO edge VALUES (4, 1), (NULL::int, 1), (1, NULL::int), (2, 4), (1, 1), (4, 1), (1, 1), (0, NULL::int), (NULL::int, 1), (1, 1), (4, 1), (0, NULL::int);
CREATE INDEX ON t2 (b);
CREATE INDEX ON t3 (id);
-- query q
SELECT count(*) AS c2 FROM (WITH w1 AS (SELECT (t2.s >= 'b') AS c2 FROM t3 AS t2), w3 AS (SELECT count(DATE '2024-01-02') AS c1 FROM w1 AS t4 CROSS JOIN (SELECT t1.n AS c3 FROM t2 AS t1) AS t5 GROUP BY t4.c2, t5.c3) SELECT (DATE '2024-01-01' + (t8.c1 % 5)::int) AS c1, t8.c1 AS c4 FROM w3 AS t8) AS t1 CROSS JOIN LATERAL (SELECT true AS c2 FROM (SELECT (DATE '2024-01-01' + (t2.a % 5)::int) AS c2 FROM t2 AS t2) AS q3 WHERE (q3.c2 = t1.c1)) AS q4 FULL JOIN edge AS t5 ON (t1.c4 = t5.src);
-- round 1
BEGIN;
INSERT INTO t2 VALUES (4, 0, 'c'::text, 0.50), (0, 1, 'a'::text, 0.50), (2, 4, 'a'::text, 0.00);
COMMIT;
