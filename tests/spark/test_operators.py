# ruff: noqa: E501 - a query is easier to read on one line
"""Every operator through the whole line: content compared both ways with PostgreSQL after every change, refreshed from
changes each time."""

from __future__ import annotations

import pytest

from tests.line import Line

TABLES = """
CREATE TABLE a (id int PRIMARY KEY, k int, v int, t text, d date NOT NULL DEFAULT '2026-01-01');
CREATE TABLE b (id int PRIMARY KEY, k int, v numeric(8, 2), t text);
CREATE TABLE c (k int, v int, tags int[], j jsonb);
CREATE TABLE e (src int NOT NULL, dst int NOT NULL);
INSERT INTO a SELECT i, nullif(i % 7, 0), nullif(i % 5, 2), 'a' || i % 4, DATE '2026-01-01' + i % 9 FROM generate_series(1, 40) AS i;
INSERT INTO b SELECT i, nullif(i % 9, 3), i * 0.25, nullif('a' || i % 6, 'a5') FROM generate_series(1, 30) AS i;
INSERT INTO c SELECT nullif(i % 6, 1), i % 4, ARRAY[i, i + 1], jsonb_build_array(i, 'x') FROM generate_series(1, 12) AS i;
INSERT INTO c SELECT 2, 2, NULL, NULL FROM generate_series(1, 3) AS i;
INSERT INTO e VALUES (1, 2), (2, 3), (3, 4), (5, 6);
CREATE VIEW joined AS SELECT a.id, a.k, b.v FROM a LEFT JOIN b ON b.k = a.k;
"""
CHANGES = (
    "INSERT INTO a SELECT i, i % 7, i % 5, 'a' || i % 4 FROM generate_series(41, 48) AS i",
    "UPDATE b SET k = k + 1 WHERE id % 5 = 0",
    "DELETE FROM b WHERE k = 4; INSERT INTO b VALUES (100, 5, 1.5, 'a1'), (101, NULL, NULL, NULL)",
    "UPDATE a SET k = NULL WHERE id % 6 = 0; UPDATE a SET v = v + 1, t = NULL WHERE id % 9 = 0",
    "DELETE FROM c WHERE k = 3; INSERT INTO c VALUES (2, 2, NULL, NULL), (NULL, 7, '{1,1}', '[1]'), (6, NULL, '{}', '[]')",
    "UPDATE c SET k = 5 WHERE ctid IN (SELECT ctid FROM c WHERE k = 2 LIMIT 1)",
    "INSERT INTO e VALUES (4, 5), (6, 1); DELETE FROM e WHERE src = 2",
    "DELETE FROM a WHERE k = 2; UPDATE b SET v = -v; UPDATE c SET v = v + 1 WHERE k > 3; DELETE FROM e WHERE src = 4",
    "DELETE FROM c; DELETE FROM e",
    "INSERT INTO c VALUES (1, 1, '{3}', '[2]'), (1, 1, '{3}', '[2]'); DELETE FROM b",
    "INSERT INTO b SELECT i, i % 9, i, 'a0' FROM generate_series(1, 12) AS i; DELETE FROM a WHERE id > 10; INSERT INTO e VALUES (1, 2)",
)
PARTS = 8  # all but the first take too long for `make test`
QUERIES = {
    "left": "SELECT a.id, b.id AS b, b.v FROM a LEFT JOIN b ON b.k = a.k AND b.v > 1",
    "right_theta": "SELECT a.id, b.id AS b FROM a RIGHT JOIN b ON b.id < a.k",
    "full": "SELECT a.id, b.id AS b, a.t, b.t AS bt FROM a FULL JOIN b ON b.k = a.k",
    "full_using": "SELECT k, a.v, c.v AS cv FROM a FULL JOIN c USING (k)",
    "full_two_keys": "SELECT a.id, b.id AS b FROM a FULL JOIN b ON b.k = a.k AND b.t = a.t",
    "full_more": "SELECT a.id, b.id AS b FROM a FULL JOIN b ON b.k = a.k AND a.v > b.v AND b.t IS NOT NULL WHERE a.t IS DISTINCT FROM 'a1'",
    "full_natural": "SELECT * FROM (SELECT k, v FROM a) x NATURAL FULL JOIN (SELECT k, v, tags FROM c) y",
    "full_nullable": "SELECT x.v, y.v AS w FROM c AS x FULL JOIN c AS y ON y.k = x.v",
    "full_expression": "SELECT a.id, c.v FROM a FULL JOIN c ON c.k + 1 = abs(a.k)",
    "full_expressions": "SELECT x.v, y.v AS w FROM c AS x FULL JOIN c AS y ON coalesce(y.k, 0) = coalesce(x.v, 0)",
    "full_chain": "SELECT k, a.id, b.id AS b, c.v FROM a FULL JOIN b USING (k) FULL JOIN c USING (k)",
    "full_chain_on": "SELECT a.id, b.id AS b, c.v FROM a FULL JOIN b ON b.k = a.k FULL JOIN c ON c.k = coalesce(a.k, b.k)",
    "full_of_joins": "SELECT a.id, b.id AS b, c.v, e.dst FROM (a JOIN e ON e.src = a.k) FULL JOIN (b LEFT JOIN c ON c.k = b.k) ON b.k = a.v",
    "full_then_left": "SELECT a.id, b.id AS b, c.v FROM a FULL JOIN b ON b.k = a.k LEFT JOIN c ON c.k = b.k AND c.v = a.v",
    "full_below_left": "SELECT c.v, a.id, b.id AS b FROM c LEFT JOIN (a FULL JOIN b ON b.k = a.k) ON a.k = c.k",
    "full_grouped": "SELECT k, count(*) AS n, count(a.id) AS na, sum(b.v) AS s FROM a FULL JOIN b USING (k) GROUP BY k",
    "full_in_subquery": "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b FULL JOIN c ON c.k = b.k WHERE coalesce(b.k, c.k) = a.v)",
    "full_with_subquery": "SELECT a.id, b.id AS b, a.k IN (SELECT k FROM c) AS known FROM a FULL JOIN b ON b.k = a.k",
    "natural": "SELECT * FROM (SELECT k, v FROM a) x NATURAL LEFT JOIN (SELECT k, t FROM b) y",
    "chain": "SELECT a.id, b.id AS b, c.v FROM a LEFT JOIN b ON b.k = a.k LEFT JOIN c ON c.k = b.k AND c.v = a.v",
    "nested_right": "SELECT a.id, b.id AS b, c.v FROM a LEFT JOIN (b JOIN c ON c.k = b.k) ON b.k = a.k",
    "nested_left": "SELECT a.id, b.id AS b, c.v FROM a LEFT JOIN (b LEFT JOIN c ON c.k = b.k) ON coalesce(c.v, b.k) = a.k",
    "left_grouped": """
        SELECT a.t, count(*) AS n, count(b.id) AS nb, sum(b.v) AS s FROM a LEFT JOIN b ON b.k = a.k GROUP BY a.t
    """,
    "nested_group": """
        SELECT n, count(*) AS how_many, sum(s) AS s FROM (SELECT a.k, count(b.id) AS n, sum(b.v) AS s
        FROM a LEFT JOIN b ON b.k = a.k GROUP BY a.k) AS q GROUP BY n
    """,
    "joined_group": """
        SELECT a.id, q.n, q.m FROM a JOIN (SELECT k, count(*) AS n, max(v) AS m FROM b GROUP BY k) AS q ON q.k = a.k
        WHERE a.v < q.n
    """,
    "undone_groups": """
        SELECT a.id, q.* FROM a JOIN (SELECT k, count(*) AS n, count(v) AS nv, sum(v) AS s, avg(v) AS m, sum(v) FILTER (WHERE t = 'a1') AS f
        FROM b GROUP BY k HAVING sum(v) > 1 OR count(*) > 2) AS q ON q.k IS NOT DISTINCT FROM a.k
    """,
    "undone_two_keys": "SELECT n, m, count(*) AS c, min(d) AS d FROM (SELECT t, d, k, count(*) AS n, avg(v) AS m FROM a GROUP BY t, d, k) AS q GROUP BY n, m",
    "undone_answer": """
        WITH r AS (SELECT k, sum(v) AS s FROM b GROUP BY k) SELECT a.id, r.s FROM a JOIN r ON r.k = a.k WHERE r.s >= (SELECT max(s) - 9 FROM r)
    """,
    "undone_answer_of_null": "WITH r AS (SELECT k, count(v) AS s FROM a GROUP BY k) SELECT k, s FROM r WHERE s = (SELECT max(s) FROM r)",
    "undone_join": """
        SELECT q.k, q.s / q.n AS s, c.v FROM (SELECT a.k, sum(b.v * a.v) AS s, count(*) AS n FROM a JOIN b ON b.k = a.k
        WHERE a.id IN (SELECT k FROM c) GROUP BY a.k) AS q LEFT JOIN c ON c.k = q.k WHERE q.n > 1
    """,
    "view": "SELECT k, count(v) AS n, max(v) AS m FROM joined GROUP BY k",
    "exists": "SELECT id, k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v > 2)",
    "not_exists": "SELECT id, k FROM a WHERE NOT EXISTS (SELECT 1 FROM b, c WHERE b.k = a.k AND c.k = b.k)",
    "in_": "SELECT id, t FROM a WHERE k IN (SELECT k FROM b WHERE t IS NOT NULL)",
    "not_in": "SELECT id, t FROM a WHERE k NOT IN (SELECT k FROM c WHERE v > 1)",
    "not_in_nullable": "SELECT id, t FROM a WHERE v NOT IN (SELECT k FROM b)",
    "in_select_list": "SELECT id, k IN (SELECT k FROM b) AS known, v = ANY (SELECT v FROM c) AS any_, v > ALL (SELECT v FROM c) AS all_ FROM a",
    "in_rows": "SELECT id FROM a WHERE (k, v) IN (SELECT k, v FROM c)",
    "in_group": "SELECT id, t FROM a WHERE k IN (SELECT k FROM b GROUP BY k HAVING count(*) > 2)",
    "under_or": "SELECT id FROM a WHERE v = 1 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k) OR k IN (SELECT k FROM c)",
    "deep": """
        SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND EXISTS (SELECT 1 FROM c WHERE c.k = b.k AND c.v
        < a.v))
    """,
    "scalar": "SELECT id, (SELECT max(v) FROM b WHERE b.k = a.k) AS m, (SELECT count(*) FROM c) AS n FROM a",
    "scalar_where": "SELECT id, v FROM a WHERE v > (SELECT avg(v) FROM c WHERE c.k = a.k) OR v = (SELECT max(v) FROM a)",
    "scalar_in_group": "SELECT t, sum(v) AS s, (SELECT count(*) FROM b WHERE b.t = a.t) AS n FROM a GROUP BY t",
    "answer": "SELECT id, v FROM a WHERE v < (SELECT avg(v) FROM b) AND NOT EXISTS (SELECT FROM c WHERE c.k = a.k)",
    "answer_null": "SELECT id FROM a WHERE (v = (SELECT max(v) FROM c)) IS NOT TRUE AND id > (SELECT count(*) FROM c JOIN b USING (k))",
    "answer_twice": "SELECT id, (SELECT sum(v) FROM c) AS s FROM a WHERE v <= (SELECT max(v) FROM c) OR k = (SELECT min(k) FROM b)",
    "answer_of_groups": """
        WITH r AS (SELECT k, sum(v) AS s FROM b GROUP BY k) SELECT a.id, r.s FROM a, r WHERE a.k = r.k AND r.s = (SELECT max(s) FROM r)
    """,
    "answer_of_equal_groups": """
        SELECT t, count(*) AS n FROM a WHERE v > (SELECT min(n) - 1 FROM (SELECT count(*) AS n FROM c GROUP BY k) AS q) GROUP BY t
    """,
    "answer_of_answer": """
        SELECT id FROM a WHERE k < (SELECT count(*) FROM (SELECT k, max(v) AS m FROM b WHERE v > (SELECT min(v) FROM c) GROUP BY k) AS q)
    """,
    "asked": "SELECT id, (SELECT sum(b.v) FROM b WHERE b.k = a.k AND b.t <> a.t) AS s FROM a WHERE v >= (SELECT count(*) FROM c WHERE c.k = a.k)",
    "asked_left": "SELECT id FROM a WHERE v < (SELECT count(c.v) FROM c LEFT JOIN b ON b.k = c.k WHERE b.k = a.k OR b.k IS NULL AND c.k = a.k)",
    "asked_outer": "SELECT id, (SELECT max(b.v) FROM c LEFT JOIN b ON b.k = c.k WHERE b.k = a.k) AS m FROM a",
    "asked_inside": "SELECT id, (SELECT max(q.v) FROM (SELECT b.v, b.k FROM b WHERE b.k = a.k) AS q WHERE q.k = a.k) AS m FROM a",
    "asked_groups": "SELECT id, (SELECT q.n FROM (SELECT k, count(*) AS n FROM b GROUP BY k) AS q WHERE q.k = a.k) AS n FROM a",
    "asked_and_unequal": "SELECT id FROM a WHERE EXISTS (SELECT FROM b WHERE b.k = a.k AND b.id <> a.id) AND NOT EXISTS (SELECT FROM c WHERE c.k = a.k AND c.v > a.v)",
    "answer_of_nothing": "SELECT id FROM a WHERE id > (SELECT count(*) FROM (SELECT FROM b GROUP BY k) AS q)",
    "answer_of_same_names": "SELECT id FROM a WHERE id > (SELECT count(*) FROM (SELECT k AS x, max(v) AS x FROM b GROUP BY k) AS q)",
    "answer_exists": "SELECT id FROM a WHERE EXISTS (SELECT FROM c WHERE v > 3) OR id < (SELECT count(*) FROM b WHERE t = 'a1')",
    "answer_on": "SELECT a.id, b.v FROM a JOIN b ON b.k = a.k AND b.v > (SELECT avg(v) FROM c)",
    "having_subquery": "SELECT k, sum(v) AS s FROM a GROUP BY k HAVING sum(v) > (SELECT avg(v) FROM c)",
    "derived_correlated": "SELECT id, (SELECT sum(x.v) FROM (SELECT b.v FROM b WHERE b.k = a.k) AS x) AS s FROM a",
    "distinct": "SELECT DISTINCT k, v FROM a",
    "distinct_nested": "SELECT count(*) AS n, sum(k) AS s FROM (SELECT DISTINCT k, t FROM b) AS q",
    "distinct_on": "SELECT DISTINCT ON (k) k, id, t FROM a ORDER BY k, v DESC NULLS LAST, id",
    "union_": "SELECT k, v FROM a UNION SELECT k, v FROM c",
    "union_all_groups": "SELECT k, count(*) AS n FROM a GROUP BY k UNION ALL SELECT k, count(*) FROM b GROUP BY k",
    "intersect_": "SELECT k FROM a INTERSECT SELECT k FROM b",
    "intersect_all": "SELECT k FROM a INTERSECT ALL SELECT k FROM c",
    "except_": "SELECT k, v FROM a EXCEPT SELECT k, v FROM c",
    "except_all": "SELECT k FROM a EXCEPT ALL SELECT k FROM b",
    "set_nested": "SELECT k, count(*) AS n FROM ((SELECT k FROM a EXCEPT SELECT k FROM b) UNION SELECT v FROM c) AS q(k) GROUP BY k",
    "rollup": "SELECT k, t, count(*) AS n, sum(v) AS s, grouping(k, t) AS g FROM a GROUP BY ROLLUP (k, t)",
    "cube": "SELECT a.t, b.t AS bt, count(*) AS n FROM a JOIN b USING (k) GROUP BY CUBE (a.t, b.t) HAVING count(*) > 1",
    "sets": "SELECT k, v % 2 AS odd, sum(v) AS s FROM a GROUP BY GROUPING SETS ((k), (v % 2), (k, v % 2))",
    "statistics": """
        SELECT k, variance(v) AS va, stddev_pop(v) AS sd, bool_and(v > 1) AS ba, bit_or(v) AS bo,
        string_agg(t, ',' ORDER BY t) AS s, array_agg(v ORDER BY v) AS arr, count(DISTINCT t) AS nd,
        percentile_disc(0.5) WITHIN GROUP (ORDER BY v) AS median, mode() WITHIN GROUP (ORDER BY t) AS mo,
        jsonb_agg(v ORDER BY v) FILTER (WHERE v > 1) AS j FROM a GROUP BY k
    """,
    "regression": "SELECT k, corr(v, id) AS c, covar_pop(v, id) AS cp, regr_slope(v, id) AS rs FROM a GROUP BY k",
    "windows": """
        SELECT id, k, row_number() OVER w AS rn, rank() OVER (PARTITION BY k ORDER BY v) AS r, sum(v) OVER (PARTITION BY k) AS s,
        lag(id) OVER w AS before, v - avg(v) OVER (PARTITION BY k) AS diff FROM a WINDOW w AS (PARTITION BY k ORDER BY v, id)
    """,
    "window_frames": """
        SELECT id, sum(v) OVER (PARTITION BY t ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s,
        count(*) OVER (PARTITION BY t ORDER BY v RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS r,
        max(v) OVER (PARTITION BY t ORDER BY v GROUPS BETWEEN 1 PRECEDING AND 1 PRECEDING EXCLUDE TIES) AS g FROM a
    """,
    "window_whole": "SELECT id, rank() OVER (ORDER BY v, id) AS r, count(*) OVER () AS n FROM a",
    "window_two_partitions": "SELECT id, count(*) OVER (PARTITION BY k, t) AS n, count(*) OVER (PARTITION BY t, k, v) AS m FROM a",
    "window_over_group": "SELECT t, k, sum(v) AS s, rank() OVER (PARTITION BY t ORDER BY sum(v)) AS r FROM a GROUP BY t, k",
    "first_of_each": "SELECT k, id FROM (SELECT k, id, row_number() OVER (PARTITION BY k ORDER BY v, t) AS n FROM a) q WHERE n = 1",
    "window_nested": "SELECT r, count(*) AS n FROM (SELECT rank() OVER (PARTITION BY k ORDER BY v) AS r FROM a) AS q GROUP BY r",
    "window_left": "SELECT a.id, b.v, rank() OVER (PARTITION BY a.k ORDER BY b.v) AS r FROM a LEFT JOIN b ON b.k = a.k",
    "limit_": "SELECT id, v FROM a ORDER BY v DESC NULLS LAST, id LIMIT 5 OFFSET 1",
    "limit_group": "SELECT k, sum(v) AS s FROM a GROUP BY k ORDER BY sum(v) DESC NULLS LAST, k LIMIT 3",
    "limit_nested": "SELECT a.id, q.m FROM a JOIN (SELECT id, v AS m FROM b ORDER BY v, id LIMIT 7) AS q ON q.id = a.id",
    "limit_distinct": "SELECT DISTINCT k, t FROM a ORDER BY t, k LIMIT 4",
    "lateral": """
        SELECT a.id, l.v FROM a CROSS JOIN LATERAL (SELECT b.v FROM b WHERE b.k = a.k ORDER BY b.v DESC, b.id LIMIT 2) AS l
    """,
    "lateral_left": "SELECT a.id, l.n FROM a LEFT JOIN LATERAL (SELECT sum(c.v) AS n FROM c WHERE c.k = a.k) AS l ON l.n > 2",
    "unnested": "SELECT c.k, u.x, u.n FROM c, unnest(c.tags) WITH ORDINALITY AS u(x, n)",
    "unnested_left": "SELECT c.k, u FROM c LEFT JOIN LATERAL unnest(c.tags) AS u ON true",
    "json": "SELECT c.v, e.value AS x FROM c CROSS JOIN LATERAL jsonb_array_elements_text(c.j) AS e",
    "series": "SELECT a.id, g FROM a, generate_series(1, a.v) AS g WHERE a.k = 3",
    "set_in_list": "SELECT k, unnest(tags) AS tag FROM c",
    "values_": "SELECT a.id, w.name FROM a JOIN (VALUES (1, 'one'), (2, 'two')) AS w(k, name) ON w.k = a.k",
    "cte_twice": "WITH q AS (SELECT k, sum(v) AS s FROM a GROUP BY k) SELECT x.k, y.k AS other FROM q x LEFT JOIN q y ON y.s > x.s",
    "recursive": """
        WITH RECURSIVE r(src, dst) AS (SELECT src, dst FROM e UNION SELECT r.src, e.dst FROM r JOIN e ON e.src = r.dst)
        SELECT src, dst FROM r
    """,
    "recursive_from": """
        WITH RECURSIVE r(id) AS (SELECT k FROM c UNION SELECT e.dst FROM r JOIN e ON e.src = r.id) SELECT id AS node, -id AS minus FROM r
    """,
    "recursive_using": "WITH RECURSIVE r(src) AS (SELECT k FROM a UNION SELECT e.dst FROM r JOIN e USING (src)) SELECT src FROM r",
    "recursive_ways": """
        WITH RECURSIVE r(n, hops) AS (SELECT k, 0 FROM c UNION ALL SELECT e.dst, r.hops + 1 FROM r JOIN e ON e.src = r.n WHERE r.hops < 5)
        SELECT hops, n FROM r
    """,
    "recursive_two_tables": """
        WITH RECURSIVE r(n, t, hops) AS (SELECT 1, NULL, 0 UNION ALL SELECT b.id, b.t, r.hops + 1 FROM r JOIN e ON e.src = r.n
        JOIN b ON b.k = e.dst WHERE r.hops < 3) SELECT n, t, hops FROM r
    """,
    "recursive_two_tables_set": """
        WITH RECURSIVE r(n, t) AS (SELECT v, t FROM a WHERE EXISTS (SELECT 1 FROM c WHERE c.k = a.k) UNION
        SELECT e.dst, b.t FROM r JOIN e ON e.src = r.n JOIN b ON b.k = e.dst) SELECT n, t FROM r
    """,
    "recursive_twice": """
        WITH RECURSIVE r(n, hops) AS (SELECT 1, 0 UNION ALL SELECT y.dst, r.hops + 1 FROM r, e x, e y
        WHERE x.src = r.n AND y.src = x.dst AND r.hops < 4) SELECT n, hops FROM r
    """,
    "recursive_path": """
        WITH RECURSIVE r(id, path) AS (SELECT id, ARRAY[id] FROM a WHERE k IS NULL UNION ALL SELECT a.id, r.path || a.id FROM r
        JOIN a ON a.k = r.id WHERE a.id <> ALL (r.path)) SELECT id, path FROM r
    """,
    "recursive_filtered": """
        WITH RECURSIVE r(id) AS (SELECT k FROM c UNION SELECT e.dst FROM r JOIN e ON e.src = r.id) SELECT id FROM r WHERE id > 2
    """,
    "recursive_joined": """
        WITH RECURSIVE r(id) AS (SELECT 1 UNION SELECT e.dst FROM r JOIN e ON e.src = r.id) SELECT a.id, a.t FROM r JOIN a ON a.k = r.id
    """,
    "recursive_left": """
        WITH RECURSIVE r(id, n) AS (SELECT 1, 0 UNION SELECT e.dst, b.id FROM r JOIN e ON e.src = r.id LEFT JOIN b ON b.k = e.dst)
        SELECT id, n FROM r
    """,
    "recursive_grouped": """
        WITH RECURSIVE r(n, hops) AS (SELECT 1, 0 UNION ALL SELECT e.dst, r.hops + 1 FROM r JOIN e ON e.src = r.n WHERE r.hops < 6)
        SELECT n, min(hops) AS hops, count(*) AS ways FROM r GROUP BY n
    """,
}


@pytest.mark.parametrize("part", range(PARTS))
def test_every_operator_is_exact_from_changes(line: Line, part: int) -> None:
    line.sql(TABLES)
    queries = dict(list(QUERIES.items())[part::PARTS])
    for name, query in queries.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    line.tick()
    for name in queries:
        line.check(name, "FULL")
    for change in CHANGES:
        line.sql(change)
        assert [o for o in line.tick() if o.error is not None] == [], change
        for name in queries:
            line.equal(name)
    rows = line.sql(
        "SELECT s.pgt_name, array_agg(DISTINCT h.action || ' ' || h.status) FROM pgtrickle.pgt_refresh_history AS h "
        "JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_id) WHERE h.initiated_by <> 'INITIAL' GROUP BY 1"
    )
    assert dict(rows).keys() == queries.keys()
    for name, actions in rows:  # from changes, or nothing where they did not matter
        assert "DIFFERENTIAL COMPLETED" in actions, name
        assert set(actions) <= {"DIFFERENTIAL COMPLETED", "NO_DATA COMPLETED"}, (name, actions)


def test_groups_below_others_are_what_they_were_also_when_what_is_not_a_number_comes_and_goes(line: Line) -> None:
    line.sql(
        "CREATE TABLE t (id int PRIMARY KEY, k int, v numeric(8, 2)); "
        "INSERT INTO t SELECT i, nullif(i % 5, 0), nullif(i, 7) FROM generate_series(1, 20) AS i"
    )
    query = "SELECT DISTINCT q.k, q.s::text, q.m::text FROM (SELECT k, sum(v) AS s, avg(v) AS m FROM t GROUP BY k) AS q"
    line.create("st", query, mode="DIFFERENTIAL")
    for change in (
        "UPDATE t SET v = 'NaN' WHERE id IN (3, 5)",
        "INSERT INTO t VALUES (21, 3, 1), (22, NULL, 'NaN'), (23, 9, 'NaN')",
        "DELETE FROM t WHERE id IN (3, 22)",
        "UPDATE t SET v = 4 WHERE v = 'NaN'",
        "DELETE FROM t WHERE k = 9 OR k IS NULL; INSERT INTO t VALUES (30, 1, 0.00), (31, 8, NULL)",
    ):
        line.sql(change)
        line.tick()
        line.check("st")


def test_groups_by_a_type_without_a_comparable_text_are_replaced_in_the_table(line: Line) -> None:
    line.sql(
        "CREATE TABLE t (j jsonb, i interval, v int); INSERT INTO t VALUES ('{\"a\": 1}', '1 day', 1), ('{\"a\": 1.0}', '24:00', 2)"
    )
    line.create("by_json", "SELECT j, sum(v) AS s FROM t GROUP BY j", mode="DIFFERENTIAL")
    line.create("by_interval", "SELECT DISTINCT i FROM t", mode="DIFFERENTIAL")
    line.sql("INSERT INTO t VALUES ('{\"a\": 1}', '24:00', 5), (NULL, NULL, 1); UPDATE t SET v = 7 WHERE v = 2")
    line.tick()
    for name in ("by_json", "by_interval"):
        line.check(name)


def test_columns_that_are_called_as_ours_are_in_groups_below_others(line: Line) -> None:
    """Bare names, as PostgreSQL writes those of a view, in the key of a group below a join, with NULLs. n, c0 and s0 are
    what we call a group's numbers."""
    line.sql("CREATE TABLE t (n int, c0 int, s0 int, v int); CREATE TABLE e (a int, b int)")
    line.sql(
        "INSERT INTO t SELECT nullif(i % 3, 0), nullif(i % 2, 0), nullif(i % 4, 0), i FROM generate_series(1, 24) AS i"
    )
    line.sql("INSERT INTO e SELECT i, i FROM generate_series(1, 12) AS i")
    line.sql("CREATE VIEW g AS SELECT n, c0, s0, count(*) AS k, sum(v) AS s FROM t GROUP BY n, c0, s0")
    line.create("joined", "SELECT g.n, g.c0, g.s0, g.s, e.b FROM g JOIN e ON e.a = g.k", mode="DIFFERENTIAL")
    line.create(
        "outer_joined",
        "SELECT g.n, g.c0, g.s, e.b FROM e LEFT JOIN g ON e.a = g.k",
        mode="DIFFERENTIAL",
    )
    for change in (
        "INSERT INTO t VALUES (NULL, NULL, NULL, 1), (NULL, 1, 2, 5), (1, NULL, 1, 7)",
        "DELETE FROM t WHERE v % 5 = 0",
        "UPDATE t SET n = NULL WHERE v < 6; UPDATE e SET a = a + 1 WHERE b > 9",
    ):
        line.sql(change)
        line.tick()
        for name in ("joined", "outer_joined"):
            line.check(name)


def test_changes_that_do_not_matter_move_the_frontier_and_nothing_else(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, name text, seen int); INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0)")
    line.create("names", "SELECT name FROM t", mode="DIFFERENTIAL")
    line.create("all_of_it", "SELECT id, name, seen FROM t", mode="DIFFERENTIAL")
    line.sql("UPDATE t SET seen = seen + 1")
    line.tick()
    line.check("names", "NO_DATA")
    line.check("all_of_it")
    line.tick()
    line.plane.tidy()
    ((buffer,),) = line.sql("SELECT 'pgtrickle_changes.changes_' || 't'::regclass::oid")
    line.sql("SELECT pg_current_xact_id()")
    line.sql("UPDATE t SET seen = seen + 1")
    line.tick()
    line.plane.tidy()
    assert line.sql(f"SELECT count(*) FROM {buffer} WHERE xid < pg_snapshot_xmin(pg_current_snapshot())")[0][0] <= 4


def test_few_changes_that_touch_very_many_rows_are_computed_anew(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row asks for the average: when it moves, all rows are another. Only AUTO may give up."""
    monkeypatch.setattr("pgtrickle.refresh.deltas.MAX_DELTA_ROWS", 100)
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 300) AS i")
    query = "SELECT id, v - (SELECT avg(v) FROM t) AS off FROM t"
    line.create("auto", query)
    line.create("bound", query, mode="DIFFERENTIAL")
    line.sql("UPDATE t SET v = 10000 WHERE id = 7")
    line.tick()
    line.check("auto", "FULL")
    assert line.last("auto")[2] == "the changes touch more than 100 rows"
    line.check("bound")
    line.sql("UPDATE t SET v = v + 1")  # 600 changes: the other way to read them
    line.tick()
    line.equal("auto")
    line.check("bound")


def test_hypothetical_set_and_user_defined_aggregates_follow_changes(line: Line) -> None:
    line.sql("CREATE AGGREGATE product(numeric) (SFUNC = numeric_mul, STYPE = numeric, INITCOND = '1')")
    line.sql("CREATE TABLE t (id int PRIMARY KEY, k int, v int)")
    line.sql("INSERT INTO t SELECT i, i % 3, nullif(i % 7, 5) FROM generate_series(1, 40) AS i")
    line.create(
        "st",
        "SELECT k, product(v) AS p, rank(3) WITHIN GROUP (ORDER BY v) AS r, "
        "dense_rank(3) WITHIN GROUP (ORDER BY v DESC) AS d, percent_rank(2) WITHIN GROUP (ORDER BY v) AS pr, "
        "cume_dist(4) WITHIN GROUP (ORDER BY v) AS c FROM t GROUP BY k",
    )
    for change in (
        "UPDATE t SET v = v + 1 WHERE id % 4 = 0",
        "DELETE FROM t WHERE k = 1 AND id > 10; INSERT INTO t VALUES (100, 9, 2), (101, NULL, 3)",
    ):
        line.sql(change)
        line.tick()
        line.check("st")
