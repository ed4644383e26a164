# ruff: noqa: E501 - a query is easier to read on one line
"""Corner cases of SQL from PostgreSQL's own regression queries, refreshed from changes. The oracle is what PostgreSQL
answers to the text, as texts."""

from __future__ import annotations

from tests.line import Line
from tests.spark.test_equal_values import answers

TABLES = """
CREATE TYPE r AS (n numeric);
CREATE TABLE t (id int PRIMARY KEY, k int, q int, v int, a numeric, c r);
INSERT INTO t SELECT n, 1 + n % 3, n % 2, n, 1.0, ROW(1.0)::r FROM generate_series(1, 6) AS n;
CREATE TABLE x (a int, v int); INSERT INTO x VALUES (1, 1), (2, 2), (2, 3);
CREATE TABLE y (a int, w int); INSERT INTO y VALUES (2, 1), (3, 1);
CREATE TABLE i1 (i int, j int); INSERT INTO i1 VALUES (1, 1);
CREATE TABLE i2 (i int, k int); INSERT INTO i2 VALUES (1, 2);
CREATE TABLE z (a int); INSERT INTO z VALUES (0);
"""
CHANGES = (
    "INSERT INTO t VALUES (7, 1, 1, 7, 1.0, ROW(1.0)::r); INSERT INTO x VALUES (3, 3); INSERT INTO i1 VALUES (2, 2); INSERT INTO i2 VALUES (2, 2)",
    "DELETE FROM t WHERE id = 2; UPDATE t SET k = 9 - k WHERE id IN (1, 3); INSERT INTO z VALUES (1); INSERT INTO y VALUES (4, 2)",
    "DELETE FROM t; DELETE FROM x; DELETE FROM z WHERE a = 1",
    "INSERT INTO t SELECT n, n % 2, n, n, 1.00, ROW(1.00)::r FROM generate_series(20, 24) AS n; INSERT INTO x VALUES (7, 7)",
)
QUERIES = {
    "constant_set": "SELECT 1 AS x, q, sum(v) AS s FROM t GROUP BY GROUPING SETS (1, 2)",
    "constant_rollup": "SELECT 1 AS x, q, sum(v) AS s, grouping(q) AS g FROM t GROUP BY ROLLUP (1, 2)",
    "constant_cube": "SELECT true AS x, 1.5 AS y, q, -3 AS m, 'k' AS w, sum(v) AS s FROM t GROUP BY CUBE (1, 2, 3, 4, 5)",
    "grouping_full": "SELECT a, grouping(a) AS g, sum(v) AS s FROM x FULL JOIN y USING (a) GROUP BY ROLLUP (a)",
    "grouping_cube": "SELECT a, grouping(a, v) AS g, count(v) AS s FROM x FULL JOIN y USING (a) GROUP BY CUBE (a, v)",
    "grouping_sum": "SELECT a + 1 AS b, grouping(a + 1) AS g, count(v) AS s FROM x FULL JOIN y USING (a) GROUP BY ROLLUP (a + 1)",
    "set_in_order": "SELECT id FROM t ORDER BY id, generate_series(1, 3)",
    "set_in_order_of_groups": "SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY generate_series(1, 2)",
    "sets_side_by_side": "SELECT id, unnest(ARRAY[1, 2]) AS u FROM t ORDER BY unnest(ARRAY[3, 4, 5])",
    "limit_of_set": "SELECT id, generate_series(1, 10) AS g FROM t ORDER BY k, id LIMIT 7",
    "limit_by_set": "SELECT id, generate_series(1, 4) AS g FROM t ORDER BY generate_series(1, 4) DESC, id LIMIT 7",
    "using_alias": "SELECT x.i, i1.j FROM i1 JOIN i2 USING (i) AS x",
    "limit_of_sorted": "SELECT * FROM (SELECT id, k FROM t ORDER BY k, id) AS x LIMIT 3",
    "limit_of_sorted_item": "WITH w AS (SELECT id, k FROM t ORDER BY k DESC, id) SELECT * FROM w LIMIT 3 OFFSET 1",
    "limit_of_sorted_groups": "SELECT k, n FROM (SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY 2 DESC, 1 DESC) AS s LIMIT 2",
    "array_of_sorted": "SELECT array_agg(id) AS a FROM (SELECT id, k FROM t ORDER BY k, id) AS x",
    "text_of_sorted": "SELECT q, string_agg(id::text, ',') AS a FROM (SELECT q, id, k FROM t ORDER BY k DESC, id) AS x GROUP BY q",
    "array_of_sorted_union": "SELECT array_agg(g) AS a FROM (SELECT id AS g FROM t UNION ALL SELECT k FROM t ORDER BY 1 DESC) AS x",
    "array_of_sorted_distinct": "SELECT array_agg(k) AS a FROM (SELECT DISTINCT k FROM t ORDER BY k DESC) AS x",
    "numbers_of_sorted": "SELECT id, row_number() OVER () AS n FROM (SELECT id, k FROM t ORDER BY k DESC, id) AS x",
    "array_subquery": "SELECT id, ARRAY(SELECT a FROM y ORDER BY a DESC) AS b FROM t",
    "having_alone": "SELECT 5 AS five FROM z WHERE 1 / a = 1 HAVING 1 < 2",
    "having_alone_false": "SELECT 5 AS five FROM z HAVING 1 > 2",
    "no_groups": "SELECT 5 AS five FROM z WHERE 1 / a = 1 GROUP BY ()",
}
# Expressions that tell equal values apart, of which PostgreSQL returns any: FULL.
WHOLE = {
    "image_of_distinct": "SELECT * FROM (SELECT DISTINCT c FROM t) AS s WHERE c *= ROW(1.0)::r",
    "text_of_distinct": "SELECT a::text AS a FROM (SELECT DISTINCT a FROM t) AS s",
    "text_of_union": "SELECT a::text AS a FROM (SELECT a FROM t UNION SELECT a FROM t) AS s",
}


def test_corner_cases_show_what_postgresql_answers(line: Line) -> None:
    line.sql(TABLES)
    for name, query in (QUERIES | WHOLE).items():
        mode = "AUTO" if name in WHOLE else "DIFFERENTIAL"
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", name, query, mode)
    line.tick()
    for change in (None, *CHANGES):
        if change is not None:
            line.sql(change)
            line.tick()
        for name, query in (QUERIES | WHOLE).items():
            action, status, why = line.last(name)
            assert status == "COMPLETED", (name, change, why)
            assert name in WHOLE or action in ("DIFFERENTIAL", "NO_DATA") or why == "first load", (
                name,
                change,
                action,
                why,
            )
            wanted, found = answers(line, query, name)
            assert found == wanted, (name, change, wanted - found, found - wanted)
    # Of HAVING alone PostgreSQL reads no table: there is nothing to refresh.
    of_changes = {n for n in QUERIES if line.last(n)[0] in ("DIFFERENTIAL", "NO_DATA")}
    assert QUERIES.keys() - of_changes <= {"having_alone", "having_alone_false"}


def test_constraint_that_is_not_valid_is_not_trusted(line: Line) -> None:
    line.sql("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int); CREATE UNIQUE INDEX ON b (id)")
    line.sql("INSERT INTO a VALUES (1), (2), (3); INSERT INTO b VALUES (1), (NULL)")
    line.sql("ALTER TABLE b ADD CONSTRAINT has_id NOT NULL id NOT VALID")
    query = "SELECT id FROM a WHERE id NOT IN (SELECT id FROM b)"
    line.create("others", query, mode="DIFFERENTIAL")
    assert line.sql("TABLE others") == []
    for change, left in (("DELETE FROM b WHERE id IS NULL", 2), ("INSERT INTO b VALUES (2)", 1)):
        line.sql(change)
        line.tick()
        line.check("others")
        assert len(line.rows("others")) == left


def test_whole_row_of_an_alias_for_using_has_the_names_of_its_columns(line: Line) -> None:
    """PostgreSQL prints such a row without them, so it is read as a whole (FULL), with the reason."""
    line.sql("CREATE TABLE i1 (i int, j int); CREATE TABLE i2 (i int, k int); INSERT INTO i1 VALUES (1, 1)")
    query = "SELECT row_to_json(x.*)::text AS r FROM i1 FULL JOIN i2 USING (i) AS x"
    line.create("named", query)
    line.sql("INSERT INTO i2 VALUES (1, 2), (3, 3)")
    line.tick()
    line.check("named", "FULL")
    ((code,),) = line.sql("SELECT mode_reason_code FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'named'")
    assert code == "using_alias"
    wanted, found = answers(line, query, "named")
    assert found == wanted
