-- Equal numerics with different digits: INTERSECT ALL showed one of them, and another one when it was evaluated as it was before (seed 20148 q46).
-- setup
CREATE TABLE t1 (id int PRIMARY KEY, a int, b int, s text, n numeric(10,2), d date, f boolean);
CREATE TABLE t2 (a int NOT NULL, b int, s text, n numeric(10,2));
CREATE TABLE t3 (id int PRIMARY KEY, t1_id int NOT NULL, s text, d date, xs int[], js jsonb);
CREATE TABLE t4 (a int, s text, n numeric(10,2), f boolean);
CREATE TABLE edge (src int, dst int);
INSERT INTO t1 VALUES (12, 0, 4, 'B c'::text, 1.25, DATE '2023-12-31', false), (4, 3, 3, 'B c'::text, -1.25, DATE '2023-12-31', NULL::boolean), (11, 4, 4, ''::text, NULL::numeric(10,2), DATE '2024-02-28', true), (11, 4, 3, 'B c'::text, 0.00, DATE '2023-12-31', false), (11, 1, 3, 'B c'::text, 1.25, DATE '2024-01-02', false), (13, NULL::int, 3, 'b'::text, -1.25, DATE '2024-02-29', true), (5, 2, 2, 'c'::text, 0.50, NULL::date, true), (5, 3, NULL::int, NULL::text, 0.00, DATE '2024-01-01', false), (6, 4, 2, 'ab'::text, 0.50, DATE '2023-12-31', false), (11, 1, 3, 'B c'::text, 1.25, DATE '2024-01-02', false), (11, 4, 3, 'B c'::text, 0.00, DATE '2023-12-31', false) ON CONFLICT DO NOTHING;
INSERT INTO t2 VALUES (1, NULL::int, NULL::text, NULL::numeric(10,2)), (1, 0, 'a'::text, NULL::numeric(10,2)), (4, NULL::int, NULL::text, 0.50), (2, 3, 'ab'::text, 0.00), (3, 1, 'c'::text, 10.00), (4, 2, NULL::text, 0.00), (0, 0, 'B c'::text, NULL::numeric(10,2)), (1, 0, 'c'::text, 0.00), (3, 4, 'c'::text, 0.00), (4, 3, NULL::text, 10.00), (4, NULL::int, NULL::text, 0.50), (4, 3, NULL::text, 10.00);
INSERT INTO t3 VALUES (3, 3, 'ab'::text, DATE '2024-02-29', ARRAY[]::int[], '[]'::jsonb), (3, 4, 'B c'::text, DATE '2024-02-28', ARRAY[2, 3, 2]::int[], '["x", "x", "x"]'::jsonb), (12, 2, 'ab'::text, DATE '2023-12-31', ARRAY[2]::int[], '[null, 1, "y"]'::jsonb), (7, 1, ''::text, DATE '2023-12-31', ARRAY[2, 2]::int[], '["x"]'::jsonb), (11, 2, 'c'::text, DATE '2024-02-29', NULL::int[], '[]'::jsonb), (11, 1, ''::text, NULL::date, ARRAY[1, 0]::int[], NULL::jsonb), (12, 2, 'b'::text, NULL::date, ARRAY[]::int[], '[]'::jsonb), (10, 1, 'b'::text, DATE '2024-01-01', ARRAY[]::int[], '[]'::jsonb), (11, 4, ''::text, DATE '2024-02-29', ARRAY[1, 1]::int[], '[]'::jsonb), (6, 4, 'b'::text, DATE '2024-01-02', NULL::int[], NULL::jsonb), (13, 4, 'b'::text, DATE '2024-01-02', ARRAY[]::int[], '[null, "y"]'::jsonb), (4, 1, 'c'::text, DATE '2023-12-31', NULL::int[], '[]'::jsonb), (11, 1, ''::text, NULL::date, ARRAY[1, 0]::int[], NULL::jsonb), (3, 3, 'ab'::text, DATE '2024-02-29', ARRAY[]::int[], '[]'::jsonb) ON CONFLICT DO NOTHING;
INSERT INTO edge VALUES (2, 2), (0, 2), (3, 3), (4, 3), (NULL::int, 1), (0, 1), (4, 0), (1, NULL::int), (2, 1), (4, 2), (4, 0), (2, 3), (2, 3), (2, 1);
INSERT INTO t1 VALUES (12, 3, 1, 'c'::text, 0.00, DATE '2023-12-31', true), (13, 4, 4, 'a'::text, 0.50, DATE '2024-02-29', NULL::boolean) ON CONFLICT DO NOTHING;
DELETE FROM t2 WHERE ctid = (SELECT min(ctid) FROM t2 WHERE s IS NOT DISTINCT FROM 'B c'::text);
UPDATE edge SET dst = coalesce(dst, 0) + 1, src = coalesce(src, 0) + 1 WHERE src IS NOT DISTINCT FROM 4;
INSERT INTO t2 VALUES (0, 0, 'a'::text, 0.00), (0, 1, 'b'::text, -1.25);
UPDATE edge SET dst = 0 WHERE dst IS NOT DISTINCT FROM 0;
INSERT INTO t2 VALUES (0, 0, 'a'::text, 0.00);
UPDATE t4 SET f = NULL::boolean WHERE s IS NOT DISTINCT FROM ''::text;
DELETE FROM edge WHERE src IS NOT DISTINCT FROM 0;
INSERT INTO t4 VALUES (3, 'c'::text, 1.25, false);
CREATE VIEW v1 AS SELECT length(t1.s) AS c1, abs(coalesce(t1.a, t1.a)) AS c2, t1.b::text AS c3, (t1.n * 1.10) AS c4 FROM t2 AS t1 WHERE (t1.b < 2);
CREATE VIEW v2 AS SELECT DISTINCT ON (1, 2, 3) length(nullif(t1.s, t1.s)) AS c1, (CASE WHEN (t1.b NOT IN (2, 2, 4)) THEN 0.00 ELSE t1.n END * 1.10) AS c2, t1.b AS c3 FROM t2 AS t1 ORDER BY 1, 2 DESC, 3 DESC;
-- query q
(SELECT true AS c2, lag(q4.c1, 1, t5.c4) OVER (PARTITION BY t5.c4 ORDER BY t5.c1 DESC NULLS LAST, q4.c1, q4.c2, q4.c3, t5.c1, t5.c2, t5.c3, t5.c4) AS c3 FROM (SELECT t1.a AS c1, t1.s AS c2, (t1.a = length(t1.s)) AS c3 FROM t2 AS t1 ORDER BY 1 NULLS FIRST, 2 NULLS FIRST, 3 LIMIT 3 OFFSET 1) AS q4 FULL JOIN (SELECT length(t1.s) AS c1, abs(coalesce(t1.a, t1.a)) AS c2, t1.b::text AS c3, (t1.n * 1.10) AS c4 FROM t2 AS t1 WHERE (t1.b < 2)) AS t5 ON (q4.c1 = t5.c4)) INTERSECT ALL (SELECT true AS c2, q4.c1 AS c3 FROM (SELECT coalesce(t3.a, t3.a)::numeric AS c1 FROM t2 AS t3) AS q4);
-- round 1
BEGIN;
UPDATE t4 SET a = 2 WHERE a IS NOT DISTINCT FROM 1;
COMMIT;
BEGIN;
UPDATE t2 SET n = 0.00 WHERE b IS NOT DISTINCT FROM 4;
INSERT INTO t2 VALUES (4, 3, 'b'::text, 1.25);
DELETE FROM t4 WHERE n IS NOT DISTINCT FROM 1.25;
INSERT INTO t4 VALUES (1, NULL::text, 0.50, false);
INSERT INTO edge VALUES (0, 2);
INSERT INTO t4 VALUES (3, ''::text, 0.00, false);
COMMIT;
