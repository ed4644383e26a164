"""The graph that the ticks use. A small one is built synchronously, a large one in a thread, and then swapped in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from pgtrickle.model.work import RefreshGroup
from pgtrickle.scheduler.graph import Graph
from pgtrickle.scheduler.state import Row

SMALL = 5_000  # stream tables whose graph takes some hundredths of a second


class GraphBuilder:
    """Used only by the thread of the ticks."""

    def __init__(self, small: int = SMALL) -> None:
        self.graph = Graph.of(())
        self._small = small
        self._wanted: tuple[Sequence[Row], Sequence[RefreshGroup]] | None = None
        self._unplaced: set[int] = set()  # of what is wanted
        self._building: Future[Graph] | None = None
        self._placing: set[int] = set()  # by what is being built

    @property
    def unknown(self) -> set[int]:
        """Tables whose current definition is not in the graph yet, or that were dropped: they wait."""
        return self._unplaced | self._placing

    def build(self, changed: Collection[int], rows: Sequence[Row], groups: Sequence[RefreshGroup]) -> None:
        """Sets all tables; `changed` were changed or dropped since the last call."""
        if self._building is None and (len(rows) <= self._small or not self.graph.nodes):
            self.graph = _graph(rows, groups)
            return
        self._wanted = rows, groups
        self._unplaced |= set(changed)
        if self._building is None:
            self._begin()

    def take_built(self) -> set[int] | None:
        """Swaps in the new graph when it is ready, and returns the tables that it added: changes of their
        sources in between were recorded in the old one."""
        if self._building is None or not self._building.done():
            return None
        self.graph, placed = self._building.result(), self._placing
        self._building, self._placing = None, set()
        if self._wanted is not None:
            self._begin()
        return placed

    def _begin(self) -> None:
        assert self._wanted is not None
        thread = ThreadPoolExecutor(1, "graph")
        self._building = thread.submit(_graph, *self._wanted)
        thread.shutdown(wait=False)
        self._placing, self._unplaced = self._unplaced, set()
        self._wanted = None


def _graph(rows: Sequence[Row], groups: Sequence[RefreshGroup]) -> Graph:
    return Graph.of((row.node() for row in rows), groups)
