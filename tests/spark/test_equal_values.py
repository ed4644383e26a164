# ruff: noqa: E501 - a query is easier to read on one line
"""Equal values that are written differently: digits are those that PostgreSQL shows, and of several equal values one is
shown that a row has. Each table is refreshed from changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.line import Line

NUMBERS = """
CREATE DOMAIN amount AS numeric(12, 2);
CREATE TABLE t (id int PRIMARY KEY, k int, v numeric, a amount, f float8);
INSERT INTO t VALUES (1, 1, 1.0, 10, 0), (2, 1, 109.00, 100, 1.5), (3, 2, 2.50, 0.5, -2), (4, 2, 3, NULL, NULL);
"""
NUMBER_CHANGES = (
    "INSERT INTO t VALUES (5, 1, 7.1250, 5, 3), (6, 3, 7.10, 5, 4), (7, 3, NULL, 7, 5)",
    "DELETE FROM t WHERE id = 5",
    "UPDATE t SET v = 'NaN' WHERE id = 2",
    "UPDATE t SET v = 109.000 WHERE id = 2",
    "UPDATE t SET v = v + 0.10, a = a + 1 WHERE id IN (1, 4)",
    "DELETE FROM t WHERE k = 2; UPDATE t SET f = '-0' WHERE id = 1",
    "INSERT INTO t SELECT i, i % 5, i * 0.50 + 1000, i, i FROM generate_series(100, 400) AS i",  # added up by PostgreSQL
    "DELETE FROM t",
)
# In each of them a text is determined: the values of the keys differ.
DIGITS = {
    "sum": "SELECT k, sum(v) AS s, avg(v) AS m, sum(a) AS sa, avg(a) AS ma, sum(v)::text AS t, sum(v) FILTER (WHERE id > 1) AS f FROM t GROUP BY k",
    "total": "SELECT sum(v) AS s, avg(v) + 1 AS m, sum(a) / 3 AS a FROM t",
    "key": "SELECT v, count(*) AS n FROM t GROUP BY v",
    "key_of_domain": "SELECT a, count(*) AS n, a + 0 AS b FROM t GROUP BY a",
    "key_float": "SELECT f, f + 1 AS t, count(*) AS n FROM t GROUP BY f",
    "keys": "SELECT v, a, f, count(*) AS n FROM t GROUP BY v, a, f",
    "distinct": "SELECT DISTINCT v FROM t",
    "distinct_domain": "SELECT DISTINCT a, k FROM t",
    "distinct_two": "SELECT DISTINCT v, a FROM t",
    "union": "SELECT v FROM t UNION SELECT v * 1000 FROM t",
    "intersect": "SELECT v, id FROM t INTERSECT SELECT v, id FROM t WHERE k < 3",
    "except_all": "SELECT v FROM t EXCEPT ALL SELECT v FROM t WHERE k = 2",
    "nested": "SELECT s, count(*) AS n FROM (SELECT k, sum(v) AS s, max(v) AS m FROM t GROUP BY k) AS q GROUP BY s",
    "below_distinct": "SELECT v AS t, abs(v) AS d FROM (SELECT DISTINCT v FROM t) AS q",
    "rollup": "SELECT v, sum(v) AS s, count(*) AS n FROM t GROUP BY ROLLUP (v)",
}


def answers(line: Line, query: str, table: str) -> tuple[Counter[Any], Counter[Any]]:
    """The texts that PostgreSQL answers to the author's text, and those in the stream table."""
    ((columns,),) = line.sql("SELECT output_columns FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", table)
    listed = ", ".join(f'"{c["name"]}"::text' for c in columns)
    wanted = line.sql(f"WITH q AS MATERIALIZED ({query}) SELECT {listed} FROM q")
    return Counter(wanted), Counter(line.sql(f"SELECT {listed} FROM {table}"))


def test_digits_are_those_that_postgresql_shows(line: Line) -> None:
    line.sql(NUMBERS)
    for name, query in DIGITS.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", f"d_{name}", query)
    line.tick()
    for number, change in enumerate((None, *NUMBER_CHANGES)):
        if change is not None:
            line.sql(change)
            line.tick()
        for name, query in DIGITS.items():
            action, status, why = line.last(f"d_{name}")
            assert status == "COMPLETED", (name, change, why)
            assert number == 0 or action in ("DIFFERENTIAL", "NO_DATA"), (name, change, action, why)
            wanted, found = answers(line, query, f"d_{name}")
            assert found == wanted, (name, change, wanted - found, found - wanted)


LOOSE = """
CREATE TYPE pair AS (n numeric, i interval);
CREATE TABLE l (id int PRIMARY KEY, k int, v numeric, w numeric, f float8, i interval, j jsonb, a numeric[], r numrange, c pair);
CREATE TABLE o (id int PRIMARY KEY, v numeric, i interval, j jsonb);
INSERT INTO l SELECT n, n % 2, (ARRAY[1.0, 1.00, 2, 2.50, NULL])[1 + n % 5], (ARRAY[1.0, 1.00, 2])[1 + n % 3], (ARRAY[0, '-0', 1.5])[1 + n % 3]::float8,
    (ARRAY['1 day', '24:00:00', '2 days', '48:00:00', NULL]::interval[])[1 + n % 5], (ARRAY['{"a": 1}', '{"a": 1.0}', '2']::jsonb[])[1 + n % 3],
    (ARRAY['{1,2}', '{1.0,2.00}', '{3}'])[1 + n % 3]::numeric[], (ARRAY['[1,2)', '[1.0,2.00)']::numrange[])[1 + n % 2],
    (ARRAY['(1,1 day)', '(1.0,24:00:00)', '(2,)'])[1 + n % 3]::pair FROM generate_series(1, 14) AS n;
INSERT INTO o VALUES (1, 1.000, '1 day', '{"a": 1.00}'), (2, 2.0, '2 days', '2.0'), (3, NULL, NULL, NULL);
"""
LOOSE_CHANGES = (
    "INSERT INTO l SELECT id + 100, k, v + 0.000, w, f, i, j, a, r, c FROM l WHERE id < 5",
    "DELETE FROM l WHERE id % 5 = 1; DELETE FROM o WHERE id = 1",
    "UPDATE l SET i = justify_hours(i), v = v * 1.0, j = '{\"a\": 1.000}' WHERE id % 3 = 0",
    "UPDATE l SET k = k WHERE id = 8",
    "DELETE FROM l WHERE id < 8; INSERT INTO o VALUES (9, 1, '24:00:00', '{\"a\": 1}')",
    "DELETE FROM o; DELETE FROM l WHERE id % 2 = 0",
    "DELETE FROM l",
)
# Each with the columns of l that a row of the result is a row of.
ONE_OF_EQUAL = {
    "interval": ("SELECT DISTINCT i FROM l", "i"),
    "several": ("SELECT DISTINCT i, v, w, f FROM l", "i, v, w, f"),
    "jsonb": ("SELECT j, count(*) AS n FROM l GROUP BY j", "j"),
    "array": ("SELECT a, r, count(*) AS n, sum(v) AS s FROM l GROUP BY a, r", "a, r"),
    "composite": ("SELECT c, count(*) AS n FROM l GROUP BY c HAVING count(*) > 1", "c"),
    "zeros": ("SELECT f, count(*) AS n FROM l GROUP BY f", "f"),
    "union": ("SELECT i FROM l UNION SELECT i FROM l WHERE k = 1", "i"),
    "except": ("SELECT i, v FROM l EXCEPT SELECT i, v FROM o", "i, v"),
    "except_all": ("SELECT j FROM l EXCEPT ALL SELECT j FROM o", "j"),
    "intersect": ("SELECT v, i FROM l INTERSECT SELECT v, i FROM o", "v, i"),
    "intersect_all": ("SELECT i FROM l INTERSECT ALL SELECT i FROM o", "i"),
    "extremes": ("SELECT k, max(i) AS i, min(v) AS v FROM l GROUP BY k", None),
    "joined": (
        "SELECT o.id, q.i, q.v, q.n, q.w FROM o JOIN (SELECT i, v, count(*) AS n, max(w) AS w FROM l GROUP BY i, v) AS q ON q.i = o.i",
        None,
    ),
    "counted": ("SELECT count(*) AS n FROM (SELECT DISTINCT j, i FROM l) AS q", None),
    "groups_of_groups": (
        "SELECT n, count(*) AS m FROM (SELECT i, count(*) AS n FROM l GROUP BY i) AS q GROUP BY n",
        None,
    ),
    "partition": ("SELECT id, rank() OVER (PARTITION BY i ORDER BY id) AS r FROM l", None),
    "distinct_on": ("SELECT DISTINCT ON (i) i, id FROM l ORDER BY i, id", "i, id"),
    "rollup_of_distinct": ("SELECT v, array_agg(DISTINCT i) AS i, count(*) AS n FROM l GROUP BY ROLLUP (v)", None),
    "cube": ("SELECT v, i, count(*) AS n FROM l GROUP BY CUBE (v, i)", None),
    "image": ("SELECT * FROM (SELECT DISTINCT c FROM l) AS s WHERE (c).n IS NOT NULL", "c"),
}


def test_one_of_equal_values_is_maintained_from_changes(line: Line) -> None:
    line.sql(LOOSE)
    for name, (query, _) in ONE_OF_EQUAL.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", f"l_{name}", query)
    line.tick()
    for number, change in enumerate((None, *LOOSE_CHANGES)):
        if change is not None:
            line.sql(change)
            line.tick()
        for name, (query, columns) in ONE_OF_EQUAL.items():
            action, status, why = line.last(f"l_{name}")
            assert status == "COMPLETED", (name, change, why)
            assert number == 0 or action in ("DIFFERENTIAL", "NO_DATA"), (name, change, action, why)
            # With the equality of the types, both ways.
            sides = (f"({query})", f"(SELECT {_columns(line, f'l_{name}')} FROM l_{name})")
            for one, other in (sides, reversed(sides)):
                assert line.sql(f"{one} EXCEPT ALL {other}") == [], (name, change)
            if columns is not None:  # the texts of a row are those of one row of the table
                listed = ", ".join(f"{c}::text" for c in columns.split(", "))
                strange = line.sql(f"SELECT {listed} FROM l_{name} EXCEPT SELECT {listed} FROM l")
                assert strange == [], (name, change)


RATES = """
CREATE TABLE t (id int PRIMARY KEY, k int, v numeric);
CREATE TABLE f (id int PRIMARY KEY, k int, rate numeric, i interval, x float8, d int);
INSERT INTO t SELECT g, g % 3, g FROM generate_series(1, 9) AS g;
INSERT INTO f SELECT g, g % 3, 1.0, '1 day', 0, g FROM generate_series(1, 9) AS g;
"""
RATE_CHANGES = (
    "INSERT INTO f SELECT id + 10, k, 1.00, '24:00:00', '-0', d FROM f",
    "DELETE FROM f WHERE id = 1",
    "UPDATE f SET rate = 1.000 WHERE id = 12; UPDATE t SET k = (k + 1) % 3 WHERE id = 3",
    "DELETE FROM f WHERE id < 5",
    "UPDATE f SET rate = rate * 1.00, i = justify_hours(i) WHERE id % 2 = 0",
    "INSERT INTO f SELECT 30 + g, g % 3, 1, '24:00', 0, g FROM generate_series(1, 5) AS g",
    "DELETE FROM f WHERE id > 9",
    "UPDATE t SET v = v * 1.0",
    "DELETE FROM f",
)
# Each shows one of several equal values of a subquery that PostgreSQL describes only together with its outer query.
CORRELATED = {
    "scalar": "SELECT id, (SELECT max(f.rate) FROM f WHERE f.k = t.k) AS r FROM t",
    "scalar_interval": "SELECT id, (SELECT min(f.i) FROM f WHERE f.k = t.k) AS r FROM t",
    "product": "SELECT id, v * (SELECT max(f.rate) FROM f WHERE f.k <= t.k) AS r FROM t",
    "join_condition": "SELECT id, (SELECT max(f.rate) FROM f JOIN t AS o ON o.id = f.d AND o.k = t.k) AS r FROM t",
    "nested": "SELECT id, (SELECT max(q.m) FROM (SELECT max(f.rate) AS m FROM f WHERE f.k = t.k GROUP BY f.d) AS q) AS r FROM t",
    "summed": "SELECT k, sum((SELECT max(f.rate) FROM f WHERE f.k = t.k)) AS r FROM t GROUP BY k",
    "compared": "SELECT id FROM t WHERE v > (SELECT max(f.rate) FROM f WHERE f.k = t.k)",
    "uncorrelated": "SELECT (SELECT max(rate) FROM f) AS r, id FROM t",
    "lateral": "SELECT t.id, l.r FROM t CROSS JOIN LATERAL (SELECT max(f.rate) AS r FROM f WHERE f.k = t.k) AS l",
    "lateral_left": "SELECT t.id, l.r, l.x FROM t LEFT JOIN LATERAL (SELECT min(f.i) AS r, max(f.x) AS x FROM f WHERE f.k = t.k) AS l ON true",
    "lateral_groups": "SELECT t.id, l.rate FROM t CROSS JOIN LATERAL (SELECT f.rate, count(*) AS n FROM f WHERE f.k = t.k GROUP BY f.rate) AS l",
    "lateral_distinct": "SELECT t.id, l.rate FROM t CROSS JOIN LATERAL (SELECT DISTINCT f.rate FROM f WHERE f.k = t.k) AS l",
    "lateral_union": "SELECT t.id, l.rate FROM t CROSS JOIN LATERAL (SELECT f.rate FROM f WHERE f.k = t.k UNION SELECT f.rate FROM f WHERE f.d = t.k) AS l",
    "lateral_argument": "SELECT t.id, l.r FROM t CROSS JOIN LATERAL (SELECT max(f.rate + t.v) AS r FROM f WHERE f.k = t.k) AS l",
    "least": "SELECT min(i) AS a, max(i) AS b FROM f",
    "least_of_groups": "SELECT k, min(i) AS a FROM f GROUP BY k",
}
# The same without a rule for it.
CORRELATED_WHOLE = {
    "first": "SELECT id, (SELECT f.rate FROM f WHERE f.k = t.k ORDER BY f.rate LIMIT 1) AS r FROM t",
    "array": "SELECT id, (SELECT array_agg(f.i ORDER BY f.i) FROM f WHERE f.k = t.k) AS r FROM t",
    "having": "SELECT id, (SELECT max(f.rate) FROM f WHERE f.k = t.k HAVING count(*) > t.k) AS r FROM t",
    "windowed": "SELECT t.id, l.i FROM t CROSS JOIN LATERAL (SELECT min(f.i) OVER (PARTITION BY f.k) AS i FROM f WHERE f.k = t.k) AS l",
    "outer_value": "SELECT id, (SELECT greatest(max(f.rate), t.v) FROM f WHERE f.k = t.k) AS r FROM t",
}


def test_one_of_equal_values_of_a_correlated_subquery(line: Line) -> None:
    line.sql(RATES)
    for name, query in (CORRELATED | CORRELATED_WHOLE).items():
        mode = "DIFFERENTIAL" if name in CORRELATED else "AUTO"
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", f"c_{name}", query, mode)
    line.tick()
    for change in (None, *RATE_CHANGES):
        if change is not None:
            line.sql(change)
            line.tick()
        for name, query in (CORRELATED | CORRELATED_WHOLE).items():
            action, status, why = line.last(f"c_{name}")
            assert status == "COMPLETED", (name, change, why)
            wanted = ("FULL",) if change is None or name in CORRELATED_WHOLE else ("DIFFERENTIAL", "NO_DATA")
            assert action in (*wanted, "NO_DATA"), (name, change, action, why)
            sides = (f"({query})", f"(SELECT {_columns(line, f'c_{name}')} FROM c_{name})")
            for one, other in (sides, reversed(sides)):
                assert line.sql(f"{one} EXCEPT ALL {other}") == [], (name, change)


def _columns(line: Line, table: str) -> str:
    ((columns,),) = line.sql("SELECT output_columns FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", table)
    return ", ".join(f'"{c["name"]}"' for c in columns)


def test_distinct_values_of_a_type_of_an_extension_below_a_total(line: Line) -> None:
    line.sql("CREATE EXTENSION citext; CREATE TABLE e (id int PRIMARY KEY, k int, x citext)")
    line.sql("INSERT INTO e VALUES (1, 1, 'a'), (2, 1, 'A'), (3, 2, 'b')")
    query = "SELECT k, array_agg(DISTINCT x) AS xs, count(*) AS n FROM e GROUP BY ROLLUP (k)"
    line.create("rolled", query, mode="DIFFERENTIAL")
    for change in (
        "INSERT INTO e VALUES (4, 2, 'B'), (5, 1, 'c')",
        "DELETE FROM e WHERE id = 1",
        "DELETE FROM e WHERE k = 2",
    ):
        line.sql(change)
        line.tick()
        assert line.last("rolled")[:2] == ("DIFFERENTIAL", "COMPLETED"), line.last("rolled")
        shown = "k, xs, n"
        for sides in ((f"({query})", f"(SELECT {shown} FROM rolled)"), (f"(SELECT {shown} FROM rolled)", f"({query})")):
            assert line.sql(" EXCEPT ALL ".join(sides)) == []


@pytest.mark.parametrize("scale", [0, 3, 20, 400])
def test_sum_has_the_largest_scale_of_its_values(line: Line, scale: int) -> None:
    line.sql(
        f"CREATE TABLE n (id int PRIMARY KEY, v numeric); INSERT INTO n VALUES (1, round(1::numeric, {scale})), (2, 2.5)"
    )
    line.create("summed", "SELECT sum(v) AS s, avg(v) AS m FROM n", mode="DIFFERENTIAL")
    for change in ("INSERT INTO n VALUES (3, 1.25)", "DELETE FROM n WHERE id = 1", "DELETE FROM n WHERE id = 3"):
        line.sql(change)
        line.tick()
        assert line.last("summed")[:2] == ("DIFFERENTIAL", "COMPLETED"), line.last("summed")
        assert line.sql("SELECT s::text, m::text FROM summed") == line.sql("SELECT sum(v)::text, avg(v)::text FROM n")
