"""Loads of groups inside the server: state and visible rows are compared once, and only what differs is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pgtrickle.apply import groups
from pgtrickle.pipeline.engine.spark import SparkEngine
from tests.conftest import Database
from tests.line import Line

QUERIES = {
    "plain": "SELECT kind, count(*) AS n, sum(v) AS s, max(v) AS most FROM t GROUP BY kind",
    "few": "SELECT kind, note, count(*) AS n FROM t GROUP BY kind, note HAVING count(*) > 2",
    "one": "SELECT count(*) AS n, sum(v) AS s FROM t",
}


def _no_spark() -> str:
    raise AssertionError("PostgreSQL computes these loads")


@pytest.fixture
def line(installed: Database) -> Iterator[Line]:
    line = Line(installed.dsn, SparkEngine(_no_spark))
    line.sql("CREATE TABLE t (id int PRIMARY KEY, kind int, note text, v numeric(10, 2))")
    line.sql("INSERT INTO t SELECT i, nullif(i % 50, 7), 'n' || i % 3, i * 0.10 FROM generate_series(1, 1000) AS i")
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    line.tick()
    for name in QUERIES:
        line.check(name, "FULL")
    yield line
    line.close()


def again(line: Line) -> dict[str, tuple[int, int]]:
    """Loads all; rows inserted and deleted."""
    for name in QUERIES:
        line.sql("SELECT pgtrickle.repair_stream_table(%s)", name)
    found = {o.table.name: (o.inserted, o.deleted) for o in line.tick()}
    for name in QUERIES:
        line.check(name, "REINITIALIZE")
    return found


def test_unchanged_groups_are_not_written(line: Line) -> None:
    places = {name: line.sql(f"SELECT ctid::text FROM {name} ORDER BY 1") for name in QUERIES}
    states = line.sql("SELECT format('pgtrickle_changes.state_%s', pgt_id) FROM pgtrickle.pgt_stream_tables ORDER BY 1")
    kept = [line.sql(f"SELECT ctid::text, xmin::text FROM {state} ORDER BY 1") for (state,) in states]
    assert again(line) == dict.fromkeys(QUERIES, (0, 0))
    assert {name: line.sql(f"SELECT ctid::text FROM {name} ORDER BY 1") for name in QUERIES} == places
    assert [line.sql(f"SELECT ctid::text, xmin::text FROM {state} ORDER BY 1") for (state,) in states] == kept


@pytest.mark.parametrize("few_rows", [0, 10_000])
def test_groups_that_changed_are_written(line: Line, monkeypatch: pytest.MonkeyPatch, few_rows: int) -> None:
    monkeypatch.setattr(groups, "FEW_ROWS", few_rows)
    line.sql("DELETE FROM t WHERE kind = 3; INSERT INTO t VALUES (5000, 99, 'new', 1.000), (5001, NULL, NULL, NULL)")
    line.sql("UPDATE t SET v = v + 1 WHERE kind = 4")
    # Group 3 goes, 99 comes, 4 and NULL are others.
    assert again(line)["plain"] == (3, 3)
    assert again(line) == dict.fromkeys(QUERIES, (0, 0))
    line.sql("TRUNCATE t")
    assert again(line)["plain"] == (0, 50)
    line.sql("INSERT INTO t VALUES (1, 1, 'x', 1)")
    assert again(line)["plain"] == (1, 0)


BY_HAND: dict[str, tuple[str, Any]] = {
    "changed": ("UPDATE plain SET n = n + 1 WHERE kind = 1", (1, 1)),
    "same value, another text": ("UPDATE plain SET s = s * 1.000 WHERE kind = 1", (1, 1)),
    "deleted": ("DELETE FROM plain WHERE kind IN (1, 2)", (2, 0)),
    "twice": ("INSERT INTO plain SELECT * FROM plain WHERE kind = 1", (0, 1)),
    "of no group": ("INSERT INTO plain SELECT kind, n, s, most, -5 FROM plain WHERE kind = 1", (0, 1)),
    "under another number": ("UPDATE plain SET __pgt_row_id = -__pgt_row_id WHERE kind = 1", (1, 1)),
    "state": ("UPDATE pgtrickle_changes.state_{id} SET n = n + 1 WHERE k0 = 1", (0, 0)),
    "state gone": ("DELETE FROM pgtrickle_changes.state_{id} WHERE k0 = 1", (1, 1)),
}


@pytest.mark.parametrize("change", BY_HAND)
def test_what_somebody_wrote_is_found(line: Line, change: str) -> None:
    ((number,),) = line.sql("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'plain'")
    line.sql("SELECT pgtrickle.protect_stream_table('plain', false)")
    text, expected = BY_HAND[change]
    line.sql(text.format(id=number))
    assert again(line)["plain"] == expected
    assert again(line) == dict.fromkeys(QUERIES, (0, 0))
