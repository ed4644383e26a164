"""A large graph is built beside the one in use."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from pgtrickle.model.work import RefreshGroup
from pgtrickle.scheduler import graph_builder
from pgtrickle.scheduler.graph import Graph
from pgtrickle.scheduler.graph_builder import GraphBuilder
from pgtrickle.scheduler.state import Row
from tests.unit.test_schedule_state import row

pytestmark = pytest.mark.unit


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Closed, until the test opens it: then graphs get ready. The first one passes."""
    opened = threading.Event()
    real, first = graph_builder._graph, [True]

    def build(rows: Sequence[Row], groups: Sequence[RefreshGroup]) -> Graph:
        if not first:
            assert opened.wait(120)
        first.clear()
        return real(rows, groups)

    monkeypatch.setattr(graph_builder, "_graph", build)
    yield opened
    opened.set()


def looked(keeper: GraphBuilder) -> set[int]:
    deadline = time.monotonic() + 120
    while (placed := keeper.take_built()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return placed


def test_small_graph_is_there_at_once() -> None:
    keeper = GraphBuilder(small=10)
    keeper.build([1], [row(1)], ())
    keeper.build([2], [row(1), row(2)], ())
    assert keeper.graph.nodes.keys() == {1, 2}
    assert keeper.unknown == set()
    assert keeper.take_built() is None


def test_large_graph_takes_over_when_it_is_ready(gate: threading.Event) -> None:
    keeper = GraphBuilder(small=1)
    rows = [row(i) for i in range(1, 5)]
    keeper.build([1, 2, 3], rows[:3], ())
    keeper.build([4], rows, ())
    assert keeper.take_built() is None
    assert keeper.graph.nodes.keys() == {1, 2, 3}
    assert keeper.unknown == {4}
    gate.set()
    assert looked(keeper) == {4}
    assert keeper.graph.nodes.keys() == {1, 2, 3, 4}
    assert keeper.unknown == set()
    assert keeper.take_built() is None


def test_what_changes_during_a_build_comes_with_the_next_one(gate: threading.Event) -> None:
    keeper = GraphBuilder(small=1)
    rows = [row(i) for i in range(1, 7)]
    keeper.build([1, 2], rows[:2], ())
    keeper.build([3], rows[:3], ())
    keeper.build([4], rows[:4], ())
    keeper.build([1, 5], rows[1:5], ())
    assert keeper.unknown == {1, 3, 4, 5}
    gate.set()
    assert looked(keeper) == {3}
    assert keeper.graph.nodes.keys() == {1, 2, 3}
    assert keeper.unknown == {1, 4, 5}
    assert looked(keeper) == {1, 4, 5}
    assert keeper.graph.nodes.keys() == {2, 3, 4, 5}
    assert keeper.unknown == set()


def test_build_that_fails_is_not_kept_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = GraphBuilder(small=1)
    keeper.build([1, 2], [row(1), row(2)], ())
    monkeypatch.setattr(graph_builder, "_graph", lambda *_: 1 / 0)
    keeper.build([3], [row(1), row(2), row(3)], ())
    with pytest.raises(ZeroDivisionError):
        looked(keeper)
