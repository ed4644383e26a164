"""Loads go batch by batch: a result of any size needs little memory, and one that breaks off leaves nothing behind."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pgtrickle.db.copy import read_batches
from pgtrickle.errors import EngineLostError
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh import loads
from tests.line import Line

SCHEMA = """
CREATE TABLE t (id int, note text, k int);
INSERT INTO t SELECT i, CASE WHEN i % 3 > 0 THEN E'line\\n"' || i END, i % 97 FROM generate_series(1, 3000) AS i;
"""
QUERIES = {
    "bag": "SELECT id, note FROM t",
    "nulls": "SELECT note FROM t",
    "groups": "SELECT k, count(*) AS n, max(id) AS m, min(note) AS first FROM t GROUP BY k",
    "recomputed": "SELECT DISTINCT ON (k) k, id FROM t ORDER BY k, id",
}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "read_batches", partial(read_batches, batch_bytes=2000))


@pytest.mark.usefixtures("small_batches")
def test_load_in_many_batches_is_the_whole_query(line: Line, engine: SparkEngine) -> None:
    line.sql(SCHEMA)
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s)", name, query)
    jobs = engine.jobs
    line.tick()
    assert engine.jobs - jobs > 20
    for name in QUERIES:
        line.check(name, "FULL")
    line.sql("DELETE FROM t WHERE id % 2 = 0")
    for name in QUERIES:
        line.sql("SELECT pgtrickle.repair_stream_table(%s)", name)
    line.tick()
    for name in QUERIES:
        line.check(name, "REINITIALIZE")


@pytest.mark.usefixtures("small_batches")
def test_load_that_breaks_off_writes_nothing_and_is_done_again(
    line: Line, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.sql(SCHEMA)
    whole, calls = engine.identify, 0

    def third_fails(rows: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise EngineLostError("Spark went away")
        return whole(rows)

    monkeypatch.setattr(engine, "identify", third_fails)
    (outcome,) = line.create("bag", QUERIES["bag"])
    assert isinstance(outcome.error, EngineLostError)
    assert line.sql("SELECT count(*) FROM bag") == [(0,)]
    line.tick()
    line.check("bag", "FULL")
    line.sql("UPDATE t SET note = 'x' WHERE id < 50")
    line.tick()
    line.check("bag")
