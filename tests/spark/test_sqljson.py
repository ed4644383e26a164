# ruff: noqa: E501 - a query is easier to read on one line
"""SQL/JSON: JSON_VALUE, JSON_QUERY, JSON_EXISTS, JSON_TABLE and constructors are text that PostgreSQL evaluates."""

from __future__ import annotations

import pytest

from pgtrickle.model.reasons import ReasonCode
from tests.line import Line

TABLES = """
CREATE TABLE t (a int PRIMARY KEY, b int, j jsonb, s text);
INSERT INTO t SELECT i, i % 4, jsonb_build_object('k', i % 3, 'list', jsonb_build_array(i, i + 1, NULL), 'o', jsonb_build_object('name', 'n' || i % 2)), 's<' || i FROM generate_series(1, 20) AS i;
"""
QUERIES = {
    "value": "SELECT a, JSON_VALUE(j, '$.k') AS v, JSON_VALUE(j, '$.k' RETURNING int ERROR ON ERROR) AS i FROM t",
    "query": "SELECT a, JSON_QUERY(j, '$.list' WITH WRAPPER KEEP QUOTES) AS q, JSON_EXISTS(j, '$.list[*] ? (@ > $x)' PASSING b AS x) AS e FROM t WHERE JSON_EXISTS(j, '$.k ? (@ > 0)')",
    "grouped": "SELECT JSON_VALUE(j, '$.o.name') AS name, count(*) AS n, sum(JSON_VALUE(j, '$.k' RETURNING int)) AS s FROM t GROUP BY JSON_VALUE(j, '$.o.name')",
    "key_in_expression": "SELECT JSON_VALUE(j, '$.o.name') || '!' AS name, count(*) AS n FROM t GROUP BY JSON_VALUE(j, '$.o.name')",
    "passing": "SELECT b, JSON_VALUE('{\"a\": 1}'::jsonb, '$.a + $x' PASSING b AS x RETURNING int) AS e, count(*) AS n FROM t GROUP BY b",
    "json_table": "SELECT t.a, jt.n, jt.ord FROM t, JSON_TABLE(t.j, '$.list[*]' COLUMNS (ord FOR ORDINALITY, n int PATH '$')) AS jt",
    "nested": "SELECT t.a, jt.* FROM t JOIN JSON_TABLE(t.j, '$' AS p COLUMNS (k int PATH '$.k' DEFAULT 7 ON EMPTY, has boolean EXISTS PATH '$.o', NESTED PATH '$.list[*]' AS l COLUMNS (item int PATH '$'))) AS jt ON jt.k > 0",
    "outer_table": "SELECT jt.n % 2 AS odd, count(*) AS c FROM t LEFT JOIN JSON_TABLE(t.j, '$.list[*]' COLUMNS (n int PATH '$')) AS jt ON true GROUP BY 1",
    "windowed": "SELECT a, JSON_VALUE(j, '$.k') AS k, rank() OVER (PARTITION BY JSON_VALUE(j, '$.k') ORDER BY a) AS r FROM t",
    "constructors": "SELECT a, JSON_OBJECT('a': a, 'b': s NULL ON NULL RETURNING jsonb) AS o, JSON_ARRAY(a, b, s ABSENT ON NULL RETURNING text) AS r, j IS JSON OBJECT AS is FROM t",
    "aggregates": "SELECT b, JSON_OBJECTAGG(a: s ABSENT ON NULL RETURNING jsonb) AS o, JSON_ARRAYAGG(s ORDER BY a RETURNING jsonb) AS l FROM t GROUP BY b",
    "scalars": "SELECT a, JSON_SCALAR(b)::text AS js, JSON_SERIALIZE(j RETURNING text) AS z, JSON(q.s)::text AS p FROM (SELECT a, b, j, '{\"x\": 1}' AS s FROM t) AS q",
}


def test_sql_json_is_maintained_from_changes(line: Line) -> None:
    line.sql(TABLES)
    for name, query in QUERIES.items():
        line.create(name, query, mode="DIFFERENTIAL")
    for change in (
        "UPDATE t SET b = b + 1, j = j || '{\"k\": 2}' WHERE a < 4; DELETE FROM t WHERE a = 7",
        "INSERT INTO t VALUES (50, 1, '{\"list\": []}', 'q'), (51, NULL, NULL, NULL), (52, 2, '[1]', '\"')",
        "UPDATE t SET j = jsonb_set(j, '{o,name}', '\"new\"') WHERE a % 3 = 0",
    ):
        line.sql(change)
        line.tick()
        for name in QUERIES:
            action, status, reason = line.last(name)
            assert (action in ("DIFFERENTIAL", "NO_DATA"), status) == (True, "COMPLETED"), (name, action, reason)
            line.equal(name)


def test_postgresql_gives_a_default_to_null_after_a_row_that_needed_it(line: Line) -> None:
    """Why such a default is FULL. When this fails, PostgreSQL has mended it."""
    line.sql("CREATE TABLE t (a int, j jsonb); INSERT INTO t VALUES (1, NULL), (2, '{}'), (3, NULL)")
    value = "SELECT JSON_VALUE(j, '$.k' RETURNING int DEFAULT 6 ON EMPTY) FROM t"
    assert line.sql(f"{value} ORDER BY a") == [(None,), (6,), (6,)]
    assert line.sql(f"{value} WHERE a = 3") == [(None,)]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT a, JSON_VALUE(j, '$.k' RETURNING date) AS d FROM t", ReasonCode.JSON_READS_CLOCK),
        (
            "SELECT a, d.at FROM t, JSON_TABLE(t.j, '$.list[*]' COLUMNS (at timestamptz PATH '$')) AS d",
            ReasonCode.JSON_READS_CLOCK,
        ),
        (
            "SELECT a FROM t WHERE JSON_EXISTS(j, '$.k ? (@.datetime() < \"2020-01-01\".datetime())')",
            ReasonCode.JSON_PATH,
        ),
        ("SELECT a, JSON_EXISTS(j, s::jsonpath) AS e FROM t", ReasonCode.JSON_PATH),
        ("SELECT a, JSON_VALUE(j, '$.k' RETURNING int DEFAULT 0 ON EMPTY) AS k FROM t", ReasonCode.JSON_DEFAULT),
        ("SELECT a FROM t WHERE JSON_EXISTS(j, 'strict $.k')", ReasonCode.JSON_DEFAULT),
        ("SELECT a FROM t WHERE JSON_EXISTS(j, '$.k' TRUE ON ERROR)", ReasonCode.JSON_DEFAULT),
    ],
)
def test_what_depends_on_more_than_its_row_is_full(line: Line, query: str, code: ReasonCode) -> None:
    line.sql(TABLES)
    line.sql("SELECT pgtrickle.create_stream_table('st', %s)", query)
    found = line.sql("SELECT effective_refresh_mode, mode_reason_code FROM pgtrickle.pgt_stream_tables")
    assert found == [("FULL", code)]
