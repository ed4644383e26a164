"""Altering a stream table that others depend on."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pgtrickle.pipeline.engine.spark import SparkEngine
from tests.conftest import Database
from tests.line import Line
from tests.postgres.test_restore import no_spark


@pytest.fixture
def line(installed: Database) -> Iterator[Line]:
    engine = SparkEngine(no_spark)
    line = Line(installed.dsn, engine)
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int, w text); INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b')")
    line.create("s", "SELECT id, v FROM t", mode="FULL")
    line.create("reader", "SELECT sum(v) AS total FROM s", mode="FULL")
    line.sql("CREATE VIEW shown AS SELECT id, v FROM s; CREATE MATERIALIZED VIEW kept AS SELECT v FROM s")
    yield line
    line.close()
    engine.close()


def alter(line: Line, query: str) -> None:
    line.sql("SELECT pgtrickle.alter_stream_table('s', query => %s)", query)


def test_added_columns_keep_views_and_readers(line: Line) -> None:
    alter(line, "SELECT id, v, w, v * 2 AS twice FROM t")
    line.tick()
    line.tick()
    line.equal("s")
    assert line.rows("s") == [(1, 10, "a", 20), (2, 20, "b", 40)]
    assert line.sql("SELECT * FROM shown ORDER BY id") == [(1, 10), (2, 20)]
    line.sql("INSERT INTO t VALUES (3, 30, NULL)")
    line.tick()
    line.tick()
    for name in ("s", "reader"):
        line.check(name, "FULL")
    # ... and they can be altered again
    alter(line, "SELECT id, v, w, v * 2 AS twice, 1 AS one FROM t WHERE id > 1")
    line.tick()
    line.equal("s")


@pytest.mark.parametrize(
    "query", ["SELECT id FROM t", "SELECT id, v::bigint AS v FROM t", "SELECT v, id FROM t", "SELECT w, id, v FROM t"]
)
def test_other_changes_are_refused_with_the_names_of_the_dependents(line: Line, query: str) -> None:
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=r"view public\.kept, view public\.shown"):
        alter(line, query)
    line.sql("DROP VIEW shown; DROP MATERIALIZED VIEW kept; INSERT INTO t VALUES (3, 30, NULL)")
    line.tick()
    line.check("s", "FULL")  # it follows its query
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=r"which stream table public\.reader reads"):
        alter(line, query)
    line.sql("SELECT pgtrickle.drop_stream_table('reader')")
    alter(line, query)
    line.tick()
    line.equal("s")
