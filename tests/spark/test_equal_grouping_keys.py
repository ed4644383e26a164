"""The same expression twice in the select list, and both columns as keys of GROUPING SETS: which of the two a key means
is not in the text that PostgreSQL prints."""

from __future__ import annotations

import psycopg
import pytest

from tests.line import Line
from tests.spark.test_equal_values import answers

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, k int, q int, v int);
INSERT INTO t SELECT n, n % 3, n % 2, n FROM generate_series(1, 6) AS n;
"""
SETS = {
    "sets": "SELECT k AS x, k AS y, sum(v) AS s FROM t GROUP BY GROUPING SETS (1, 2)",
    "constants": "SELECT 1 AS x, 1 AS y, sum(v) AS s FROM t GROUP BY ROLLUP (1, 2)",
    "texts": "SELECT 'a' AS x, 'a' AS y, sum(v) AS s FROM t GROUP BY CUBE (1, 2)",
    "aliases": "SELECT k AS x, k AS y, sum(v) AS s FROM t GROUP BY ROLLUP (y, x)",
    "expressions": "SELECT k + 1 AS x, k + 1 AS y, sum(v) AS s, grouping(k + 1) AS g FROM t GROUP BY CUBE (1, 2)",
    "mixed": "SELECT k AS x, k AS y, q % 2 AS z, sum(v) AS s FROM t "
    "GROUP BY q, GROUPING SETS (2, ROLLUP (1, q % 2), (3, 2, k), ()), CUBE ((1, q), id) HAVING sum(v) > 1",
    "first_rows": "SELECT k AS x, k AS y, sum(v) AS s FROM t GROUP BY GROUPING SETS (1, 2) "
    "ORDER BY y NULLS FIRST, x LIMIT 2",
    "subquery": "SELECT x, s FROM (SELECT k AS x, k AS y, sum(v) AS s FROM t GROUP BY GROUPING SETS (1, 2)) AS q "
    "WHERE y > 0 OR s > 5",
    "cases": "SELECT CASE WHEN q > 0 THEN 'odd, (' ELSE 'even' END AS x, CASE WHEN q > 0 THEN 'odd, (' ELSE 'even' END "
    "AS y, q AS z, count(*) AS n FROM t GROUP BY ROLLUP (1, 2), 3 ORDER BY 2, 1 DESC, 4",
}
VIEW = "CREATE VIEW grouped AS SELECT k AS x, k AS y, sum(v) AS s FROM t GROUP BY GROUPING SETS (1, 2)"


@pytest.mark.parametrize("mode", ["AUTO", "FULL"])
def test_each_key_is_null_in_the_sets_without_it(line: Line, mode: str) -> None:
    line.sql(TABLES)
    line.sql(VIEW)
    queries = SETS | {"from_view": "SELECT x, s FROM grouped WHERE y > 0"}
    for name, query in queries.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", name, query, mode)
    line.tick()
    for change in (None, "INSERT INTO t VALUES (7, 1, 1, 70), (8, NULL, 0, 8)", "DELETE FROM t WHERE k = 2"):
        if change is not None:
            line.sql(change)
            line.tick()
        for name, query in queries.items():
            assert line.last(name)[:2] == ("FULL", "COMPLETED"), (name, line.last(name))
            wanted, found = answers(line, query, name)
            assert found == wanted, (name, change, wanted - found, found - wanted)
    reasons = dict(line.sql("SELECT pgt_name, mode_reason_code FROM pgtrickle.pgt_stream_tables"))
    if mode == "AUTO":
        assert reasons == dict.fromkeys(queries, "equal_grouping_keys")


def test_spark_refuses_such_sets(line: Line) -> None:
    line.sql(TABLES)
    line.sql(VIEW)
    for name, query in (SETS | {"from_view": "SELECT x, s FROM grouped WHERE y > 0"}).items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', engine => 'spark')", name, query)
    line.tick()
    for name in SETS:
        action, status, why = line.last(name)
        assert (action, status) == ("FULL", "FAILED"), name
        assert "grouping sets with two equal columns is not evaluated on Spark" in (why or ""), (name, why)


def test_modes_that_need_changes_are_refused(line: Line) -> None:
    line.sql(TABLES)
    for query in SETS.values():
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="selects the same expression twice"):
            line.sql("SELECT pgtrickle.create_stream_table('r', %s, 'calculated', 'DIFFERENTIAL')", query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT ON (y) k AS x, k AS y, sum(v) AS s FROM t GROUP BY GROUPING SETS (1, 2) ORDER BY y, x",
        "SELECT k AS x, k AS y FROM t GROUP BY ROLLUP (1, 2) UNION ALL SELECT k, q FROM t GROUP BY ROLLUP (1, 2)",
    ],
)
def test_text_that_cannot_be_written_is_refused(line: Line, query: str) -> None:
    line.sql(TABLES)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="could not tell apart"):
        line.sql("SELECT pgtrickle.create_stream_table('r', %s, 'calculated', 'FULL')", query)
    line.sql(f"CREATE VIEW w AS {query}")
    line.create("r", "SELECT x, y FROM w")
    line.sql("INSERT INTO t VALUES (7, 1, 1, 70)")
    line.tick()
    wanted, found = answers(line, "SELECT x, y FROM w", "r")
    assert found == wanted


def test_sets_without_equal_columns_are_maintained(line: Line) -> None:
    """Equal columns that are keys of the same sets, or of one column only, are determined by the text."""
    line.sql(TABLES)
    queries = {
        "one": "SELECT k AS x, k AS y, sum(v) AS s FROM t GROUP BY ROLLUP (k)",
        "two": "SELECT k AS x, q AS y, sum(v) AS s FROM t GROUP BY ROLLUP (1, 2) "
        "UNION ALL SELECT q, k, count(*) FROM t GROUP BY ROLLUP (1, 2)",
        "plain": "SELECT k AS x, k AS y, sum(v) AS s FROM t GROUP BY 1, 2",
    }
    for name, query in queries.items():
        line.create(name, query, mode="DIFFERENTIAL")
    line.sql("INSERT INTO t VALUES (7, 1, 1, 70), (8, NULL, 0, 8); DELETE FROM t WHERE k = 2")
    line.tick()
    for name, query in queries.items():
        line.check(name)
        wanted, found = answers(line, query, name)
        assert found == wanted, name
