-- Queries of tests/spark/test_relational.py: a line with a name, then the query. The tables are in the test.

-- list
SELECT id, a + 1 AS k, b, n * 2 AS m, x, f, s || '!' AS s, c, d + 1 AS d, ts, NOT o AS o, xs, u FROM t

-- case of names
SELECT "A", a, "select" AS "X" FROM "Mixed"

-- where
SELECT id FROM t WHERE a > 1 OR s IS NULL AND o

-- inner join
SELECT t.id, r.b FROM t JOIN r ON t.a = r.a AND t.n < r.n

-- left join
SELECT t.id, r.b, r.n FROM t LEFT JOIN r ON t.a = r.a AND r.b > 1

-- right join
SELECT t.id, t.x, r.b FROM t RIGHT JOIN r ON t.a = r.a

-- full join
SELECT t.id, t.x, r.b FROM t FULL JOIN r ON t.a = r.b

-- full join using
SELECT a, t.id, r.b FROM t FULL JOIN r USING (a)

-- natural join
SELECT * FROM (SELECT a, s, id FROM t) q NATURAL LEFT JOIN r

-- cross join
SELECT t.id, r.b FROM t, r, none

-- join in parentheses
SELECT t.id, q.b FROM t LEFT JOIN (r JOIN r q ON r.b = q.b) ON t.a = r.a

-- numeric and float join
SELECT t.id, q.id AS other FROM t JOIN t q ON t.x = q.f OR t.f = q.f

-- char join
SELECT t.id, q.id AS other FROM t JOIN t q ON t.c = q.c

-- subquery in FROM
SELECT q.k, q.n FROM (SELECT a AS k, n FROM t WHERE a IS NOT NULL) q WHERE q.k < 3

-- with
WITH w AS (SELECT a, b FROM r), v AS (SELECT a FROM w) SELECT w.b, v.a FROM w JOIN v ON w.a = v.a

-- values
SELECT v.x, v.y FROM (VALUES (1, 1.0), (2, 1.00), (NULL, 3)) v(x, y)

-- union all
SELECT a, n FROM t UNION ALL SELECT b, x FROM t

-- group
SELECT a, count(*), count(n) AS m, sum(a) AS sa, sum(b) AS sb, sum(n) AS sn, sum(x) AS sx, min(n), max(d), min(f) AS f
FROM t GROUP BY a

-- group by numeric
SELECT count(*), x = 1 AS one FROM t GROUP BY x

-- group by char
SELECT c, count(*) FROM t GROUP BY c

-- group by float
SELECT count(*), f IS NULL AS n FROM t GROUP BY f

-- group by expression
SELECT a % 2 AS k, (a % 2) * 10 AS m, count(*) FROM t GROUP BY a % 2 HAVING count(*) > 1

-- group by primary key
SELECT t.id, t.s, t.n, count(*) FROM t JOIN r USING (a) GROUP BY t.id

-- no rows
SELECT count(*), sum(a), avg(n), max(s), bool_and(a > 1) FROM none

-- no groups
SELECT a, count(*) FROM none GROUP BY a

-- average
SELECT avg(a) AS i, avg(b) AS l, avg(n) AS n, avg(x) AS x FROM t WHERE id < 6

-- averages
SELECT a, avg(b) AS l, avg(n) AS n, avg(n * n) AS q, avg(x) AS x FROM t WHERE id < 6 GROUP BY a

-- division
SELECT id, n / 3 AS a, 100 / n AS b, x / 7 AS c, n / x AS d, a / 2 AS e FROM t WHERE n <> 0

-- logic
SELECT a, bool_and(o), bool_or(o), every(o) FROM t GROUP BY a

-- bits
SELECT bit_and(a) AS a, bit_or(a) AS o, bit_xor(a) AS x FROM t

-- filter
SELECT count(*) FILTER (WHERE a > 1) AS c, sum(n) FILTER (WHERE o) AS s, avg(a) FILTER (WHERE o) FROM t

-- distinct aggregates
SELECT count(DISTINCT x) AS a, count(DISTINCT s) AS b, sum(DISTINCT a) AS c, avg(DISTINCT n) AS d FROM t

-- stddev
SELECT o, stddev(a) AS a, stddev_pop(n) AS n, stddev_samp(b) AS b, stddev(x) AS x FROM t WHERE id < 6 GROUP BY o

-- stddev of many
SELECT k % 13 AS g, stddev(k * k * 1.25) AS s, stddev_pop(k) AS p, stddev(k % 3) AS q FROM generate_series(1, 400) k GROUP BY 1

-- jsonb is handed on and ordered
SELECT j, row_number() OVER (ORDER BY j, k) AS n
FROM (VALUES (1, '[]'::jsonb), (2, '[1]'), (3, '[null]'), (4, '["a", "b"]'), (5, '[true, 1.0]'), (6, '["é\"x,]"]'), (7, '[-3]'),
  (8, NULL), (9, '["a", 2]'), (10, '[false, 2]')) q(k, j)

-- members of jsonb
SELECT k, x, n, y
FROM (VALUES (1, '[]'::jsonb), (2, '[1.50, "a\nb", null, "[", true]'), (3, NULL)) q(k, j)
LEFT JOIN jsonb_array_elements_text(j) WITH ORDINALITY e(x, n) ON true CROSS JOIN LATERAL jsonb_array_elements(j) f(y)

-- times as text
SELECT d::text AS d, ts::text AS ts, string_agg(d::text, ',') OVER (PARTITION BY o ORDER BY id) AS l FROM t

-- dates joined
SELECT array_to_string(array_agg(d ORDER BY d DESC), ',', '*') AS d, array_to_string(array_agg(ts ORDER BY ts), ';') AS ts
FROM t GROUP BY o

-- variance
SELECT variance(a) AS a, var_pop(n) AS n, var_samp(b) AS b FROM t WHERE id < 6 GROUP BY o

-- string_agg
SELECT a, string_agg(s, ',' ORDER BY s DESC) AS x, string_agg(DISTINCT s, '|' ORDER BY s) FROM t GROUP BY a

-- array_agg
SELECT array_to_string(array_agg(a ORDER BY a NULLS FIRST), ',', '*') AS x, cardinality(array_agg(s)) FROM t

-- json
SELECT jsonb_agg(s ORDER BY s)::text AS x, jsonb_agg(a ORDER BY a DESC)::text AS y FROM t

-- sorted
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY a) AS p, mode() WITHIN GROUP (ORDER BY s DESC) AS m,
rank(2) WITHIN GROUP (ORDER BY a) AS r, percentile_disc(0.9) WITHIN GROUP (ORDER BY x DESC) AS q FROM t

-- rollup
SELECT a, s, count(*), GROUPING(a, s) AS g FROM t GROUP BY ROLLUP (a, s)

-- cube
SELECT a, s, sum(n) FROM r GROUP BY CUBE (a, s) HAVING sum(n) > 0

-- grouping sets
SELECT a, s, count(*) FROM t GROUP BY GROUPING SETS ((a, s), (a), (), ())

-- grouping sets of no rows
SELECT a, count(*) FROM none GROUP BY GROUPING SETS ((a), ())

-- distinct
SELECT DISTINCT a, o FROM t

-- distinct on
SELECT DISTINCT ON (a) a, id FROM t ORDER BY a, id DESC

-- union
SELECT a FROM t UNION SELECT b FROM r

-- intersect
SELECT a, s FROM r INTERSECT SELECT a, s FROM t

-- intersect all
SELECT a, s FROM r INTERSECT ALL SELECT a, s FROM r WHERE b < 4

-- except
SELECT a FROM r EXCEPT SELECT a FROM t

-- except all
SELECT a, s FROM r EXCEPT ALL (SELECT 1, 'a' UNION ALL SELECT 2, NULL)

-- set operations of numerics
(SELECT count(*) FROM (SELECT x FROM t INTERSECT SELECT n FROM t) q)

-- limit
SELECT id, s FROM t ORDER BY s DESC NULLS LAST, id LIMIT 3 OFFSET 1

-- limit of numerics
SELECT id FROM t ORDER BY x NULLS FIRST, id DESC LIMIT 4

-- limit of floats
SELECT id FROM t ORDER BY f DESC, id LIMIT 3

-- ties
SELECT a, id FROM t ORDER BY a FETCH FIRST 1 ROWS WITH TIES

-- ties after an offset
SELECT a, b FROM r ORDER BY a, b OFFSET 1 FETCH FIRST 1 ROWS WITH TIES

-- limit of a set operation
SELECT a FROM t UNION SELECT b FROM r ORDER BY 1 DESC LIMIT 2

-- exists
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM r WHERE r.a = t.a AND r.b < t.b)

-- not exists
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.a = t.a)

-- exists as a value
SELECT id, EXISTS (SELECT 1 FROM r WHERE r.a = t.a) AS e, EXISTS (SELECT 1 FROM none) AS n FROM t

-- exists in OR
SELECT id FROM t WHERE o OR EXISTS (SELECT 1 FROM r WHERE r.a > t.a)

-- in
SELECT id FROM t WHERE a IN (SELECT a FROM r)

-- not in with NULL
SELECT id FROM t WHERE a NOT IN (SELECT a FROM r)

-- not in
SELECT id FROM t WHERE a NOT IN (SELECT b FROM r WHERE b > 1)

-- not in nothing
SELECT id FROM t WHERE a NOT IN (SELECT a FROM none)

-- not in, correlated
SELECT id FROM t WHERE a NOT IN (SELECT r.b FROM r WHERE r.a = t.a)

-- in as a value
SELECT id, a IN (SELECT a FROM r) AS x, a NOT IN (SELECT b FROM r WHERE b > 2) AS y, a IN (SELECT a FROM none) AS z
FROM t

-- rows in
SELECT id, (a, s) IN (SELECT a, s FROM r) AS x FROM t WHERE (a, s) NOT IN (SELECT b, s FROM r)

-- any and all
SELECT id, a > ANY (SELECT a FROM r) AS x, a < ALL (SELECT b FROM r) AS y, a <> ALL (SELECT a FROM none) FROM
t

-- any and all as filters
SELECT id FROM t WHERE a >= ALL (SELECT r.b FROM r WHERE r.a = t.a) AND a < ANY (SELECT b FROM r)

-- scalar
SELECT id, (SELECT max(n) FROM r) AS m, (SELECT a FROM none) AS z FROM t

-- scalar, correlated
SELECT id, (SELECT count(*) FROM r WHERE r.a = t.a) AS c, (SELECT max(b) FROM r WHERE r.a < t.a) AS m FROM t

-- scalar with LIMIT
SELECT id, (SELECT s FROM r WHERE r.a = t.a ORDER BY b, s LIMIT 1) AS s FROM t

-- scalar in WHERE
SELECT id FROM t WHERE n < (SELECT avg(q.n) FROM t q WHERE q.a = t.a)

-- two levels
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM r WHERE r.a = t.a AND EXISTS (SELECT 1 FROM r q WHERE q.b = r.b
AND q.a <= t.id))

-- scalar of groups
SELECT a, (SELECT count(*) FROM r WHERE r.a = t.a) AS c FROM t GROUP BY a HAVING a > (SELECT 1)

-- correlated groups
SELECT id, (SELECT sum(c) FROM (SELECT count(*) AS c FROM r WHERE r.b <= t.a GROUP BY s) q) FROM t

-- correlated union
SELECT id, (SELECT max(k) FROM (SELECT r.b AS k FROM r WHERE r.a = t.a UNION SELECT t.id) q) FROM t

-- correlated window
SELECT id, (SELECT max(k) FROM (SELECT row_number() OVER (ORDER BY r.b) AS k FROM r WHERE r.a = t.a) q) FROM t

-- subquery in ON
SELECT t.id, r.b FROM t LEFT JOIN r ON t.a = r.a AND r.b > (SELECT min(q.b) FROM r q WHERE q.a = t.a)

-- subquery of both sides
SELECT t.id, r.b FROM t LEFT JOIN r ON EXISTS (SELECT 1 FROM r q WHERE q.a = t.a AND q.b = r.b)

-- lateral
SELECT t.id, q.b FROM t CROSS JOIN LATERAL (SELECT b FROM r WHERE r.a = t.a ORDER BY b LIMIT 1) q

-- left lateral
SELECT t.id, q.c FROM t LEFT JOIN LATERAL (SELECT count(*) AS c, t.a FROM r WHERE r.a > t.a) q ON true

-- series
SELECT t.id, g.g FROM t, generate_series(1, t.a) g(g)

-- unnest
SELECT t.id, u.e, u.k FROM t, unnest(t.xs) WITH ORDINALITY u(e, k)

-- ranks
SELECT id, row_number() OVER (ORDER BY id), rank() OVER (ORDER BY a), dense_rank() OVER (PARTITION BY o ORDER
BY a DESC), percent_rank() OVER (ORDER BY a), cume_dist() OVER (ORDER BY a NULLS FIRST), ntile(4) OVER (ORDER
BY id) FROM t

-- neighbours
SELECT id, lag(x) OVER (ORDER BY id) AS a, lead(n, 2) OVER (ORDER BY id) AS b,
lag(s, 1, 'none') OVER (PARTITION BY a ORDER BY id) AS c FROM t

-- frames
SELECT id, sum(n) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a, count(*) OVER (ORDER BY a) AS b,
sum(a) OVER (ORDER BY a RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS c, max(s) OVER (PARTITION BY a) AS d,
avg(n) OVER (ORDER BY id DESC) AS e, count(a) OVER (ORDER BY a GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS f FROM t

-- values of frames
SELECT id, first_value(x) OVER w, last_value(x) OVER w, nth_value(n, 2) OVER w FROM t WINDOW w AS (ORDER BY id
ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING)

-- exclude
SELECT id, sum(n) OVER (ORDER BY a, id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) AS a,
count(*) OVER (ORDER BY a GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS b,
min(s) OVER (ORDER BY a RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE GROUP) AS c FROM t

-- window of groups
SELECT a, sum(count(*)) OVER (ORDER BY a), rank() OVER (ORDER BY count(*) DESC) FROM t GROUP BY a

-- recursive
WITH RECURSIVE w(a, k) AS (SELECT a, 0 FROM r WHERE a = 1 UNION SELECT r.b, w.k + 1 FROM w JOIN r ON r.a = w.a
WHERE w.k < 5) SELECT a, k FROM w

-- recursive union all
WITH RECURSIVE w(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM w WHERE k < 4) SELECT sum(k) FROM w

-- to_char
SELECT id, to_char(d, 'YYYY-MM') AS m FROM t
