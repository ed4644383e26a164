"""Stream tables on Spark whose queries have expressions that PostgreSQL computes when it reads a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Database
from tests.line import Line
from tests.spark.test_nexmark_on_spark import QUERIES, load

CHANGES = (
    "UPDATE bid SET url = replace(url, 'channel_id=', 'channel_id=7') WHERE bidder % 3 = 0;"
    "DELETE FROM bid WHERE price % 11 = 0;"
    "INSERT INTO bid VALUES (1, 50, 700, 'baidu', 'https://x/?channel_id=new', '2024-02-28 23:50', ''), "
    "(1, 50, 701, 'apple', NULL, '2024-02-28 23:51', '')",
    "UPDATE person SET profile = jsonb_set(profile, '{age}', '41') WHERE id % 100 = 0;"
    "UPDATE person SET profile = NULL WHERE id % 100 = 50 AND id < 200; DELETE FROM auction WHERE id % 5 = 0",
)


def engines(line: Line, name: str) -> list[tuple[str, str]]:
    return line.sql("SELECT action, engine FROM pgtrickle.get_refresh_history(%s) ORDER BY refresh_id", name)


@pytest.mark.parametrize("mode", ["FULL", "DIFFERENTIAL"])
def test_patterns_and_documents_are_computed_by_postgresql(line: Line, mode: str) -> None:
    load(line.conn, 600)
    for name in ("q21", "q23"):
        text = "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s, engine => 'spark')"
        line.sql(text, name, QUERIES[name], mode)
    line.tick()
    stored = line.sql("SELECT jsonb_array_length(computed) FROM pgtrickle.pgt_replicas ORDER BY 1")
    assert stored == [(0,), (2,), (2,)]  # of auction, bid and person
    for name in ("q21", "q23"):
        assert line.sql(f"SELECT count(*) > 5 FROM {name}") == [(True,)]
    for change in CHANGES:
        line.sql(change)
        line.tick()
        for name in ("q21", "q23"):
            line.equal(name)
    for name in ("q21", "q23"):
        assert engines(line, name) == [("FULL", "spark"), (mode, "spark")]


def test_stream_tables_share_a_replica_whatever_they_have_computed(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, doc jsonb)")
    line.sql(
        """INSERT INTO t SELECT i, jsonb_build_object('a', i % 3, 'b', 'x' || i % 2) FROM generate_series(1, 20) i"""
    )
    for name in ("a", "b"):
        query = f"SELECT doc ->> '{name}' AS v, count(*) AS n FROM t GROUP BY 1"
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', engine => 'spark')", name, query)
        line.tick()
    for _ in range(2):
        line.sql("""UPDATE t SET doc = doc || '{"a": 5, "b": "y"}' WHERE id = (SELECT max(id) FROM t)""")
        line.sql("""INSERT INTO t SELECT max(id) + 1, '{"a": 9}' FROM t""")
        line.tick()
        for name in ("a", "b"):
            line.equal(name)
    for name in ("a", "b"):
        assert engines(line, name) == [("FULL", "spark"), ("DIFFERENTIAL", "spark"), ("DIFFERENTIAL", "spark")]
    assert line.sql("SELECT jsonb_array_length(computed) FROM pgtrickle.pgt_replicas") == [(2,)]


def test_renamed_columns_do_not_stop_a_replica(line: Line) -> None:
    """An expression over a former name is not computed any more; neither is one over a name that another column has."""
    line.sql("CREATE TABLE t (id int PRIMARY KEY, one text, two text)")
    line.sql("INSERT INTO t SELECT i, 'a' || i, 'b' || i FROM generate_series(1, 20) AS i")
    query = "SELECT id, one ~ '[1-5]$' AS is_low FROM t"
    line.sql("SELECT pgtrickle.create_stream_table('low', %s, 'calculated', engine => 'spark')", query)
    line.tick()
    line.equal("low")
    line.sql("ALTER TABLE t RENAME one TO former; ALTER TABLE t RENAME two TO one")
    line.sql("UPDATE t SET former = 'c9' WHERE id = 2")
    line.tick()
    line.equal("low")
    assert {engine for _, engine in engines(line, "low")} == {"spark"}
    ((computed,),) = line.sql("SELECT computed FROM pgtrickle.pgt_replicas")
    assert [c["expression"] for c in computed] == ["\"former\" ~ '[1-5]$'::text"]


def test_a_pattern_that_is_wrong_stops_its_own_table_only(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    create = "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', engine => 'spark')"
    line.sql(create, "wrong", "SELECT id, substring(name from '(') AS x FROM t")
    line.sql(create, "right_one", "SELECT id FROM t WHERE name ~ '^a'")
    line.tick()
    line.equal("right_one")
    assert engines(line, "right_one") == [("FULL", "spark")]
    ((status, message),) = line.sql(
        "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'wrong'"
    )
    assert status == "ERROR"
    assert "Spark cannot evaluate" in message
    assert line.sql("SELECT last_error FROM pgtrickle.replicas()") == [(None,)]


def test_tables_of_other_databases_have_no_computed_columns(
    make_installed: Callable[[], Database], make_line: Callable[..., Any]
) -> None:
    home, other = make_installed(), make_installed()
    other.sql("CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    line = make_line(home)
    query = f"SELECT id FROM {other.name}.public.t WHERE name ~ '^a'"
    line.sql("SELECT pgtrickle.create_stream_table('st', %s, 'calculated', engine => 'spark')", query)
    for _ in range(3):
        line.tick()
    ((status, message),) = line.sql(
        "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'st'"
    )
    assert status == "ERROR"
    assert "Spark cannot evaluate" in message
