"""The 22 queries of TPC-H in their published text, as stream tables, through five cycles of changes to all tables."""

from __future__ import annotations

import pytest

from tests.line import Line
from tests.tpch.database import CYCLES, QUERIES, TABLES, cycle

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Queries that may be recomputed, and what stands in their way; the mode of all others is asserted.
EXPECT_FULL: dict[str, str] = {}


def create(line: Line, name: str) -> None:
    mode = "AUTO" if name in EXPECT_FULL else "DIFFERENTIAL"
    line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", name, QUERIES[name], mode)


def check(line: Line, name: str) -> None:
    """Equal to PostgreSQL's answer, and refreshed in the way that it claims."""
    action, status, reason = line.last(name)
    assert status == "COMPLETED", (name, reason)
    if name not in EXPECT_FULL:
        assert action == "DIFFERENTIAL", (name, reason)
    line.equal(name)


def modes(line: Line) -> dict[str, str]:
    rows = line.sql("SELECT pgt_name, effective_refresh_mode FROM pgtrickle.pgt_stream_tables")
    return {str(name): str(mode) for name, mode in rows}


def test_queries_are_the_twenty_two() -> None:
    assert [name for name in QUERIES if "_" not in name] == [f"q{i:02}" for i in range(1, 23)]
    assert set(QUERIES) - {f"q{i:02}" for i in range(1, 23)} == {"q15_view"}
    assert len(TABLES) == 8


def test_all_queries_at_once_follow_five_cycles(tpch: Line) -> None:
    for name in QUERIES:
        create(tpch, name)
    tpch.tick()
    for name in QUERIES:
        assert tpch.last(name)[:2] == ("FULL", "COMPLETED"), (name, tpch.last(name))
        tpch.equal(name)
    wrong = {name for name, mode in modes(tpch).items() if mode != "DIFFERENTIAL"} - set(EXPECT_FULL)
    assert not wrong
    for number in range(CYCLES):
        cycle(tpch.conn, number)
        failed = {o.table.name: o.error.one_line() for o in tpch.tick() if o.error is not None}
        assert not failed
        for name in QUERIES:
            check(tpch, name)


@pytest.mark.parametrize("name", QUERIES)
def test_each_query_alone_follows_five_cycles(tpch: Line, name: str) -> None:
    create(tpch, name)
    tpch.tick()
    tpch.equal(name)
    for number in range(CYCLES):
        cycle(tpch.conn, number)
        tpch.tick()
        check(tpch, name)
