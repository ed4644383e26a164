# ruff: noqa: E501 - a query is easier to read on one line
"""Expressions over one of several equal values (DISTINCT, UNION, keys of groups, min, max): those that tell equal values
apart are evaluated as a whole, all others are maintained from changes. The oracle is PostgreSQL's answer to the text."""

from __future__ import annotations

from tests.line import Line
from tests.spark.test_equal_values import answers

TABLES = """
CREATE EXTENSION citext;
CREATE TYPE r AS (n numeric, i interval);
CREATE TABLE t (id int PRIMARY KEY, k int, a numeric, i interval, j jsonb, f float8, z timetz, c citext, m numeric(12, 2), b char(5), s text,
    n int, p r, x numeric[], d date);
CREATE TABLE u (id int PRIMARY KEY, k int, a numeric, m numeric(12, 2), n int);
INSERT INTO t SELECT g, g % 3, (ARRAY[1.00, 1.0, 2, 2.50])[1 + g % 4], (ARRAY['24:00:00', '1 day', '2 days', '30 days', '1 mon']::interval[])[1 + g % 5],
    (ARRAY['{"a": 1.00}', '{"a": 1.0}', '{"a": 2}']::jsonb[])[1 + g % 3], (ARRAY['-0', 0, 1.5]::float8[])[1 + g % 3],
    (ARRAY['12:00+00', '13:00+01']::timetz[])[1 + g % 2], (ARRAY['A', 'a', 'b']::citext[])[1 + g % 3], g / 4.0, 'a' || g % 2, 's' || g % 3, g,
    (ARRAY['(1,1 day)', '(1.0,24:00:00)', '(2,)']::r[])[1 + g % 3], (ARRAY['{1.0}', '{1.00}'])[1 + g % 2]::numeric[], DATE '2026-01-01' + g
    FROM generate_series(1, 12) AS g;
INSERT INTO u SELECT g, g % 3, (ARRAY[1.000, 2.0])[1 + g % 2], g / 3.0, g FROM generate_series(1, 6) AS g;
"""
CHANGES = (
    "INSERT INTO t (id, k, a, i, j, f, z, c, m, b, s, n, p) SELECT id + 100, k, a + 0.000, justify_hours(i), j, 0 - f, z, upper(c::text)::citext, m, b, s, n, p FROM t",
    "DELETE FROM t WHERE id IN (1, 4, 5); DELETE FROM u WHERE id = 2; INSERT INTO u VALUES (20, 1, 1, 7.5, 9)",
    "UPDATE t SET a = a * 1.0, f = -f, i = i + '0' WHERE id % 2 = 0",
    "DELETE FROM t WHERE id > 20",
)
# Each tells equal values apart: the texts of numeric, of a key, an extreme, in conditions, of nested results, ...
SEEN = (
    "SELECT a::text AS e FROM (SELECT DISTINCT a FROM t) AS s",
    "SELECT scale(a) AS e FROM (SELECT a FROM t UNION SELECT a FROM u) AS s",
    "SELECT x::text AS e FROM (SELECT a AS x FROM t INTERSECT SELECT a FROM u) AS q",
    "SELECT a::text AS e, count(*) AS n FROM t GROUP BY a",
    "SELECT k, max(a)::text AS e FROM t GROUP BY k",
    "SELECT k, CASE WHEN k > 1 THEN max(a) ELSE 0 END::text AS e FROM t GROUP BY k",
    "SELECT k, max(a) / 3 AS e FROM t GROUP BY k",
    "SELECT k FROM t GROUP BY k HAVING max(a)::text > '1'",
    "SELECT k FROM (SELECT k, max(a) AS x FROM t GROUP BY k) AS s WHERE scale(x) > 1",
    "SELECT (p).n IS NULL AS e FROM (SELECT DISTINCT p FROM t) AS s WHERE p *= ROW(1.0, '1 day')::r",
    "SELECT (p).n IS NULL AS e FROM (SELECT DISTINCT p FROM t) AS s WHERE ROW(1.0, '1 day')::r *= p",
    "SELECT extract(day from i) AS e FROM (SELECT DISTINCT i FROM t) AS s",
    "SELECT TIMESTAMP '2026-01-31' + max(i) AS e FROM t",
    "SELECT j ->> 'a' AS e FROM (SELECT DISTINCT j FROM t) AS s",
    "SELECT k, c::text AS e FROM (SELECT DISTINCT k, c FROM t) AS s",
    "SELECT f::text AS e, count(*) AS n FROM t GROUP BY f",
    "SELECT extract(timezone from z) AS e FROM (SELECT DISTINCT z FROM t) AS s",
    "SELECT id, (SELECT max(u.a) FROM u WHERE u.k = t.k)::text AS e FROM t",
    "SELECT count(*) AS n FROM (SELECT DISTINCT a FROM t) AS s GROUP BY scale(a)",
    "SELECT k, string_agg(a::text, ',' ORDER BY a) AS e FROM (SELECT DISTINCT k, a FROM t) AS s GROUP BY k",
    "SELECT t.id FROM t JOIN (SELECT DISTINCT a FROM u) AS s ON s.a::text = t.a::text",
    "SELECT z::text AS e FROM (SELECT (x + 1) * 2 AS z FROM (SELECT DISTINCT a AS x FROM t) AS q) AS q2",
    "SELECT to_json(a)::text AS e FROM (SELECT DISTINCT a FROM t) AS q",
    "SELECT a::text AS e, array_agg(id ORDER BY id) AS ids FROM t GROUP BY a",
    "SELECT id, max(a) OVER (PARTITION BY k)::text AS e FROM t",
    "SELECT k, array_agg(DISTINCT a)::text AS e FROM t GROUP BY k",
    "SELECT k, sum(DISTINCT a)::text AS e FROM t GROUP BY k",
    "SELECT l.e FROM t CROSS JOIN LATERAL (SELECT max(u.a)::text AS e FROM u WHERE u.k = t.k) AS l",
)
# None does: the value itself, equal results, or types whose equal values have one text.
NOT_SEEN = (
    "SELECT a::text AS e, scale(a) AS g FROM t",
    "SELECT a::text AS e FROM t EXCEPT SELECT a::text FROM u",
    "SELECT DISTINCT a::text AS e FROM t",
    "SELECT DISTINCT a FROM t",
    "SELECT a + 1 AS e, a * 2 AS g, -a AS h FROM (SELECT DISTINCT a FROM t) AS s",
    "SELECT k, max(m) / 3 AS e, max(m)::text AS g, min(n)::text AS h FROM t GROUP BY k",
    "SELECT a, count(*) AS n FROM t GROUP BY a",
    "SELECT i, count(*) AS n FROM t GROUP BY i HAVING i > '1 day'",
    "SELECT round(a, 2) AS e, a::numeric(10, 2) AS g, a::int AS h FROM (SELECT DISTINCT a FROM t) AS s",
    "SELECT id, (SELECT max(u.m) FROM u WHERE u.k = t.k) / 2 AS e, (SELECT max(u.n) FROM u WHERE u.k = t.k)::text AS g FROM t",
    "SELECT id, (SELECT max(u.a) FROM u WHERE u.k = t.k) AS e FROM t",
    "SELECT t.id FROM t JOIN (SELECT DISTINCT a FROM u) AS s ON s.a = t.a",
    "SELECT id FROM t WHERE a IN (SELECT DISTINCT a FROM u)",
    "SELECT coalesce(a, 0) AS e, CASE WHEN a > 1 THEN a ELSE -a END AS g FROM (SELECT DISTINCT a FROM t) AS s",
    "SELECT s || 'x' AS e, length(s) AS g FROM (SELECT DISTINCT s FROM t) AS q",
    "SELECT lower(s) AS e, upper(max(s)) AS g FROM t GROUP BY s",
    "SELECT d::text AS e, extract(year from d) AS g FROM (SELECT DISTINCT d FROM t) AS q",
    "SELECT k, sum(a)::text AS e, avg(m)::text AS g FROM t GROUP BY k",
    "SELECT m::text AS e, count(*) AS n FROM t GROUP BY m",
    "SELECT (p).n AS e FROM (SELECT DISTINCT p FROM t) AS s",
    "SELECT x[1] AS e FROM (SELECT DISTINCT x FROM t) AS s",
    "SELECT f * 2 AS e, f::int AS g, f / 3 AS h FROM (SELECT DISTINCT f FROM t) AS s",
    "SELECT k, count(a) AS n, count(DISTINCT a) AS e, sum(a) AS g FROM (SELECT DISTINCT k, a FROM t) AS s GROUP BY k",
    "SELECT a, rank() OVER (ORDER BY a) AS e FROM (SELECT DISTINCT a FROM t) AS s",
    "SELECT a FROM (SELECT DISTINCT a FROM t) AS s ORDER BY a LIMIT 3",
    "SELECT x::text AS e FROM (SELECT m AS x FROM t UNION SELECT m FROM u) AS q",
    "SELECT rtrim(b) AS e FROM (SELECT DISTINCT b FROM t) AS q",
    "SELECT round(100 * max(m) / sum(m), 2) AS e FROM t",
    "SELECT c, count(*) AS n FROM t GROUP BY c",
    "SELECT id, max(a) OVER (PARTITION BY k) AS e, max(n) OVER (PARTITION BY k)::text AS g, lag(n) OVER (PARTITION BY k ORDER BY id)::text AS h FROM t",
    "SELECT k, array_agg(DISTINCT a) AS e, array_agg(DISTINCT m)::text AS g, sum(DISTINCT m) / 3 AS h FROM t GROUP BY k",
    "SELECT a > 1 AND a < 9 AS e, a IN (1, 2) AS g, a IS NULL AS h, a IS DISTINCT FROM 1 AS l FROM (SELECT DISTINCT a FROM t) AS s",
)


def test_expressions_that_tell_equal_values_apart_are_evaluated_as_a_whole(line: Line) -> None:
    line.sql(TABLES)
    for i, query in enumerate(SEEN):
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated')", f"q{i}", query)
    line.tick()
    for change in (None, *CHANGES):
        if change is not None:
            line.sql(change)
            line.tick()
        for i, query in enumerate(SEEN):
            assert line.last(f"q{i}")[:2] in (("FULL", "COMPLETED"), ("NO_DATA", "COMPLETED")), (
                query,
                line.last(f"q{i}"),
            )
            wanted, found = answers(line, query, f"q{i}")
            assert found == wanted, (query, change, wanted - found, found - wanted)
    codes = line.sql("SELECT pgt_name, mode_reason_code FROM pgtrickle.pgt_stream_tables")
    assert dict(codes) == {f"q{i}": "equal_values_seen" for i in range(len(SEEN))}


def test_other_expressions_are_maintained_from_changes(line: Line) -> None:
    line.sql(TABLES)
    for i, query in enumerate(NOT_SEEN):
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", f"q{i}", query)
    line.tick()
    for change in (None, *CHANGES):
        if change is not None:
            line.sql(change)
            line.tick()
        for i, query in enumerate(NOT_SEEN):
            action, status, why = line.last(f"q{i}")
            assert status == "COMPLETED", (query, why)
            assert change is None or action in ("DIFFERENTIAL", "NO_DATA"), (query, action, why)
            ((columns,),) = line.sql(
                "SELECT output_columns FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", f"q{i}"
            )
            sides = [f"({query})", f"(SELECT {', '.join(c['name'] for c in columns)} FROM q{i})"]
            for one, other in (sides, reversed(sides)):
                assert line.sql(f"{one} EXCEPT ALL {other}") == [], (query, change)
