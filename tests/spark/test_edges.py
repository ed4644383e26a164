"""Queries and data that once went wrong, or would if a guard were missing, through the whole line."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pgtrickle.apply.target import Target
from tests.line import Line


@dataclass(frozen=True)
class Edge:
    setup: str
    query: str
    changes: tuple[str, ...]


EDGES = {
    # dA * B1 brings -5 and A0 * dB brings +5 into a group that the state does not know: they cancel only together.
    "minimum_of_a_new_group_when_terms_cancel": Edge(
        "CREATE TABLE a (k int, v int); CREATE TABLE b (k int, g text); INSERT INTO a VALUES (1, 5), (1, 9)",
        "SELECT b.g, min(a.v) AS lo FROM a JOIN b ON a.k = b.k GROUP BY b.g",
        ("DELETE FROM a WHERE v = 5; INSERT INTO b VALUES (1, 'x')",),
    ),
    "minimum_of_a_group_of_nulls_when_terms_cancel": Edge(
        "CREATE TABLE a (k int, v int); CREATE TABLE b (k int, g text); "
        "INSERT INTO a VALUES (1, 5), (2, NULL), (1, 9); INSERT INTO b VALUES (2, 'x')",
        "SELECT b.g, min(a.v) AS lo FROM a JOIN b ON a.k = b.k GROUP BY b.g",
        ("DELETE FROM a WHERE v = 5; INSERT INTO b VALUES (1, 'x')",),
    ),
    "one_column_that_is_null": Edge(
        "CREATE TABLE a (t text); INSERT INTO a VALUES (NULL), (''), ('x'), (NULL)",
        "SELECT t FROM a",
        ("DELETE FROM a WHERE t IS NULL", "INSERT INTO a VALUES (NULL)"),
    ),
    "rows_longer_than_a_block": Edge(
        "CREATE TABLE a (i int, t text); INSERT INTO a VALUES (1, repeat('x', 3000000)), (2, 'y')",
        "SELECT i, t FROM a",
        ("UPDATE a SET i = i + 1",),
    ),
    "expression_over_a_cast_key": Edge(
        "CREATE TABLE a (v numeric); INSERT INTO a VALUES (1.1), (1.2), (2)",
        "SELECT v::int + 1 AS k, count(*) AS n FROM a GROUP BY v::int",
        ("INSERT INTO a VALUES (1.3)", "DELETE FROM a WHERE v = 1.1"),
    ),
    "expression_over_a_case_key": Edge(
        "CREATE TABLE a (v int); INSERT INTO a VALUES (1), (2), (3)",
        "SELECT CASE WHEN v > 1 THEN 1 ELSE 0 END + 1 AS k, count(*) AS n FROM a "
        "GROUP BY CASE WHEN v > 1 THEN 1 ELSE 0 END",
        ("INSERT INTO a VALUES (4)",),
    ),
    "expression_over_a_subscript_key": Edge(
        "CREATE TABLE a (v int[]); INSERT INTO a VALUES ('{1,2}'), ('{1,3}')",
        "SELECT v[1] + 1 AS k, count(*) AS n FROM a GROUP BY v[1]",
        ("INSERT INTO a VALUES ('{1,4}')",),
    ),
    "predicate_as_key": Edge(
        "CREATE TABLE a (v int); INSERT INTO a VALUES (1), (NULL), (3)",
        "SELECT v IS NULL AS k, NOT (v IS NULL) AS other, count(*) AS n FROM a GROUP BY v IS NULL",
        ("INSERT INTO a VALUES (4)",),
    ),
    "collated_key": Edge(
        "CREATE TABLE a (v text); INSERT INTO a VALUES ('a'), ('A'), ('b')",
        """SELECT (v COLLATE "C") || 'x' AS k, max(v COLLATE "C") AS m FROM a GROUP BY v COLLATE "C" """,
        ("INSERT INTO a VALUES ('a')",),
    ),
    # A branch alone has another type than in its union: 5 / 2 of integers is 2.
    "arithmetic_over_a_union_of_types": Edge(
        "CREATE TABLE a (v int); CREATE TABLE b (v numeric); INSERT INTO a VALUES (1), (3); INSERT INTO b VALUES (2.5)",
        "SELECT u.v / u.w AS h FROM (SELECT v, v - v + 2 AS w FROM a UNION ALL SELECT v, 2 FROM b) u",
        ("INSERT INTO a VALUES (5)", "DELETE FROM a WHERE v = 3", "UPDATE b SET v = 7"),
    ),
    "union_of_a_date_and_a_timestamp": Edge(
        "CREATE TABLE a (v date); CREATE TABLE b (v timestamp); INSERT INTO a VALUES ('2026-01-01'); "
        "INSERT INTO b VALUES ('2026-01-01 10:00')",
        "SELECT v FROM a UNION ALL SELECT v FROM b",
        ("INSERT INTO a VALUES ('2026-02-02')", "DELETE FROM a WHERE v = '2026-01-01'"),
    ),
    "extract_over_aggregates": Edge(
        "CREATE TABLE a (k int, at timestamptz); INSERT INTO a VALUES (1, '2026-01-01'), (1, '2026-01-02')",
        "SELECT k, EXTRACT(epoch FROM max(at) - min(at)) AS e, EXTRACT(quarter FROM max(at)) AS q FROM a GROUP BY k",
        ("INSERT INTO a VALUES (1, '2026-07-01')",),
    ),
    "arrays_as_keys_of_extremes": Edge(
        "CREATE TABLE a (k text[], v int); INSERT INTO a VALUES ('{a,b}', 1), ('{a,b}', 2), (NULL, 3)",
        "SELECT k, min(v) AS lo FROM a GROUP BY k",
        (
            "DELETE FROM a WHERE v = 1",
            "INSERT INTO a VALUES ('{}', 4), (NULL, 2)",
            "DELETE FROM a WHERE v = 4; DELETE FROM a WHERE v = 2",
        ),
    ),
    "count_of_composites_with_null_fields": Edge(
        "CREATE TYPE pt AS (x int, y int); CREATE TABLE a (p pt); "
        "INSERT INTO a VALUES (ROW(1, 2)), (ROW(NULL, 2)), (NULL)",
        "SELECT count(p) AS n FROM a",
        ("INSERT INTO a VALUES (ROW(NULL, 5)), (NULL)", "DELETE FROM a WHERE (p).x = 1"),
    ),
    "domains_that_refuse_null": Edge(
        "CREATE DOMAIN d AS int NOT NULL CHECK (VALUE > 0); CREATE TABLE a (k d, v d); INSERT INTO a VALUES (1, 2)",
        "SELECT k, max(v) AS m, sum(v) AS s, count(*) AS n FROM a GROUP BY k",
        ("INSERT INTO a VALUES (1, 5), (2, 3)", "DELETE FROM a WHERE v = 5"),
    ),
    "percent_signs": Edge(
        "CREATE TABLE a (k text, v int); INSERT INTO a VALUES ('a%b', 1)",
        "SELECT k || '%s' AS k, min(v) AS m, sum(v) % 3 AS s FROM a WHERE k LIKE '%' GROUP BY k || '%s' "
        "HAVING max(k) LIKE '%b%'",
        ("INSERT INTO a VALUES ('a%b', 7)", "DELETE FROM a WHERE v = 1"),
    ),
    "backslashes_and_quotes": Edge(
        "CREATE TABLE a (k text, v int); INSERT INTO a VALUES ('a\\', 1)",
        "SELECT k || '\\' AS k, '\\''x' AS q, v FROM a WHERE k <> '\\'",
        ("INSERT INTO a VALUES ('\\b', 7), ('''', 8)", "DELETE FROM a WHERE v = 1"),
    ),
    "reserved_and_quoted_names": Edge(
        """CREATE TABLE a ("group" int, "Order" text, "a b" int, "q""q" int, "from" int);
        INSERT INTO a VALUES (1, 'x', 2, 3, 4)""",
        """SELECT "group", "Order" || 'k' AS "AS", sum("a b") AS "select", max("q""q") AS "FROM", min("from") AS mn
        FROM a GROUP BY "group", "Order" """,
        ("INSERT INTO a VALUES (1, 'x', 7, 8, 1)", 'DELETE FROM a WHERE "from" = 1'),
    ),
    "count_of_everything": Edge(
        "CREATE TABLE a (k int); INSERT INTO a VALUES (1), (2)",
        "SELECT count(*) AS n FROM a WHERE k > 0",
        ("INSERT INTO a VALUES (3), (-1)", "DELETE FROM a"),
    ),
    "change_that_only_a_reread_measure_sees": Edge(
        "CREATE TABLE a (k int, v int, t text); INSERT INTO a VALUES (1, 5, 'x'), (1, 6, 'y')",
        "SELECT k, max(v) AS hi, min(t) AS lo, count(DISTINCT t) AS d FROM a GROUP BY k",
        ("UPDATE a SET t = 'a' WHERE v = 5", "UPDATE a SET t = 'a'"),
    ),
    "sum_that_returns_to_zero": Edge(
        "CREATE TABLE a (k int, v int); INSERT INTO a VALUES (1, 5), (2, NULL)",
        "SELECT k, sum(v) AS s, avg(v) AS m, count(v) AS n FROM a GROUP BY k",
        ("INSERT INTO a VALUES (1, -5), (2, 3)", "UPDATE a SET v = NULL", "DELETE FROM a WHERE k = 2"),
    ),
    "nothing_to_nothing": Edge(
        "CREATE TABLE a (k int, v int)",
        "SELECT count(*) AS n, sum(v) AS s, min(v) AS m FROM a HAVING count(*) < 2",
        ("INSERT INTO a VALUES (1, 5)", "INSERT INTO a VALUES (2, 1)", "DELETE FROM a"),
    ),
    "duplicates_of_duplicates": Edge(
        "CREATE TABLE a (k int); INSERT INTO a VALUES (1), (1), (NULL), (NULL)",
        "SELECT x.k FROM a x JOIN a y ON x.k IS NOT DISTINCT FROM y.k JOIN a z ON z.k IS NOT DISTINCT FROM y.k",
        (
            "INSERT INTO a VALUES (1), (NULL)",
            "DELETE FROM a WHERE ctid IN (SELECT ctid FROM a LIMIT 2)",
            "UPDATE a SET k = 2",
        ),
    ),
}


@pytest.mark.parametrize("small", [True, False], ids=["arrays", "staged"])
@pytest.mark.parametrize("name", EDGES)
def test_table_stays_exact_with(line: Line, monkeypatch: pytest.MonkeyPatch, name: str, small: bool) -> None:
    edge = EDGES[name]
    if not small:
        monkeypatch.setattr("pgtrickle.refresh.deltas.SMALL_ROWS", 0)
    line.sql(edge.setup)
    line.create("st", edge.query, mode="DIFFERENTIAL")
    line.check("st", "FULL")
    for change in edge.changes:
        line.sql(change)
        line.tick()
        line.check("st")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, v, t FROM a",
        "SELECT k, count(*) AS n, sum(v) AS s, min(v) AS lo, max(t) AS t FROM a GROUP BY k",
    ],
    ids=["bag", "groups"],
)
@pytest.mark.parametrize("small", [True, False], ids=["arrays", "staged"])
def test_rows_of_one_identity_stay_apart(line: Line, monkeypatch: pytest.MonkeyPatch, query: str, small: bool) -> None:
    """Every row and group collides with every other one; each is still found by its columns."""
    for module in ("apply.target", "apply.groups", "apply.topk", "refresh.recompute"):
        monkeypatch.setattr(f"pgtrickle.{module}.text_hash", lambda _text: "7::int8")
    monkeypatch.setattr(Target, "identity", lambda _self, _values, _text, _texts=None: "7::int8")
    if not small:
        monkeypatch.setattr("pgtrickle.refresh.deltas.SMALL_ROWS", 0)
    line.sql("CREATE TABLE a (k int, v int, t text)")
    line.sql(
        "INSERT INTO a SELECT i % 7, nullif(i % 5, 0), nullif(repeat('x', i % 4), '') FROM generate_series(1, 60) AS i"
    )
    line.create("st", query, mode="DIFFERENTIAL")
    line.check("st", "FULL")
    assert line.sql("SELECT count(*) > 1 FROM st")[0][0]
    for change in (
        "DELETE FROM a WHERE v = 1 AND k < 4",
        "INSERT INTO a VALUES (NULL, 1, ''), (NULL, 1, ''), (2, NULL, NULL), (99, 0, 'new')",
        "UPDATE a SET k = k + 1 WHERE v = 2",
        "UPDATE a SET v = -v WHERE t IS NULL",
        "DELETE FROM a WHERE k IS NULL OR k = 99",
        "DELETE FROM a",
    ):
        line.sql(change)
        line.tick()
        line.check("st")
    if "GROUP" not in query:
        assert not line.rows("st")


def test_verify_reads_around_pending_changes_of_types_without_equality(line: Line) -> None:
    line.sql("CREATE TABLE a (j json, p point, n numeric, c char(4), js json[])")
    line.sql("""INSERT INTO a VALUES ('{"b": 1}', '(1,2)', 1.0, 'x', '{1}'), ('{"b": 1}', '(1,2)', 1.00, 'x', '{1}')""")
    line.create("st", "SELECT j, p, n, n::text AS nt, c, js FROM a", mode="DIFFERENTIAL")
    line.sql("INSERT INTO a VALUES ('[]', NULL, 2, NULL); DELETE FROM a WHERE n::text = '1.0'")
    line.equal("st")
    line.tick()
    line.check("st")


def test_truncated_source_empties_a_table_that_is_recomputed(line: Line) -> None:
    line.sql("CREATE TABLE a (k int); INSERT INTO a VALUES (1), (1), (2)")
    line.create("st", "SELECT DISTINCT k FROM a")
    line.sql("TRUNCATE a")
    line.tick()
    assert line.rows("st") == []
    line.check("st", "FULL")


def test_text_that_cannot_be_cut_is_recomputed_in_auto(line: Line) -> None:
    """A key named as a word of SQL: PostgreSQL does not accept our cutting of the text, and the reason says so."""
    line.sql("CREATE TABLE a (at timestamptz, k int); INSERT INTO a VALUES ('2026-01-01', 1)")
    line.create("st", "SELECT at, (at AT TIME ZONE 'UTC') AS u, count(*) AS n FROM a GROUP BY at")
    line.sql("INSERT INTO a VALUES ('2026-01-02', 1), ('2026-01-01', 2)")
    line.tick()
    assert line.last("st")[1] == "COMPLETED"
    line.equal("st")


@pytest.mark.parametrize(
    "query", ["SELECT m, count(*) AS n FROM a GROUP BY m", "SELECT m, v FROM a"], ids=["groups", "bag"]
)
def test_renamed_label_of_an_enum_is_a_changed_source(line: Line, query: str) -> None:
    """Rows and groups are known by their text, which is another one now."""
    line.sql("CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE a (m mood, v int)")
    line.sql("INSERT INTO a VALUES ('sad', 1), ('ok', 2)")
    line.create("st", query, mode="DIFFERENTIAL")
    line.sql("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; INSERT INTO a VALUES ('blue', 3)")
    line.tick()
    line.check("st", "REINITIALIZE")
    line.sql("DELETE FROM a WHERE v = 1")
    line.tick()
    line.check("st")
