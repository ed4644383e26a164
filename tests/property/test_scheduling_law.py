"""Due columns, units, queue and what goes behind, as a scheduler would use them: all becomes current, nothing twice.

A stream table's content is what its sources had when it was refreshed. When the changes have stopped and everything is
quiet, each has to be what its sources are now, and no table is ever in two leases.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from pgtrickle.dispatch.queue import Lease, Queue
from pgtrickle.dispatch.quota import WorkerLimit, cap
from pgtrickle.errors import TransientError
from pgtrickle.model.work import Node, QueuedUnit, RefreshGroup
from pgtrickle.scheduler.diamonds import is_atomic
from pgtrickle.scheduler.due import DIRTY, EMPTY, IN_FLIGHT, REQUESTED, Due, Members, positions_of
from pgtrickle.scheduler.graph import Graph
from pgtrickle.scheduler.units import Deferred, TickInput, plan

BASES = (900, 901, 902)
TICK = 0.5


class Fleet:
    """One database, two workers that take a while, commits at random."""

    def __init__(self, random: Random) -> None:
        self.random = random
        count = random.randint(2, 14)
        nodes = []
        for i in range(1, count + 1):
            reads = [100 + j for j in range(1, i) if random.random() < 0.25]
            reads += random.sample(BASES, random.randint(0 if reads else 1, 2))
            nodes.append(
                Node(
                    i,
                    100 + i,
                    tuple(reads),
                    random.choice(["1s", "1s", "3s", "calculated", "*/1 * * * *"]),
                    random.choice(["AUTO", "AUTO", "AUTO", "IMMEDIATE"]),
                    diamond_consistency=random.choice([None, "atomic", "none", "none"]),
                    diamond_schedule_policy=random.choice([None, "fastest", "slowest"]),
                )
            )
        groups = [
            RefreshGroup(f"g{k}", tuple(random.sample(range(1, count + 1), 2)), isolation)
            for k, isolation in enumerate(("read_committed", "repeatable_read"))
            if random.random() < 0.4
        ]
        self.graph = Graph.of(nodes, groups)
        self.ids = list(self.graph.nodes)
        self.index = {i: p for p, i in enumerate(self.ids)}
        self.due = Due.of(
            [self.graph.nodes[i].schedule for i in self.ids],
            [EMPTY] * count,
            [-np.inf] * count,
            [self.graph.nodes[i].refresh_mode == "IMMEDIATE" for i in self.ids],
        )
        self.behind = Deferred()
        self.queue = Queue()
        self.jobs = 0
        self.versions: Counter[int] = Counter()  # of base tables
        self.content: dict[int, object] = {}
        self.running: list[tuple[float, float, Lease, dict[int, object]]] = []
        self.now = 1_000_000.0

    def content_of(self, relid: int, content: dict[int, object]) -> object:
        return self.versions[relid] if relid in BASES else content.get(relid - 100)

    def computed(self, pgt_id: int, content: dict[int, object]) -> object:
        return tuple(self.content_of(s, content) for s in self.graph.nodes[pgt_id].sources)

    def change(self) -> None:
        relid = self.random.choice(BASES)
        self.versions[relid] += 1
        self.due.mark(positions_of(self.graph.readers.get(relid, ()), self.index), DIRTY)

    def tick(self) -> None:
        self.now += TICK
        self.finish()
        due = self.due
        found = due.due(self.now)
        asked = due.asked(found)
        found_plan = plan(
            self.graph,
            TickInput(
                due=[self.ids[p] for p in found],
                asked=[self.ids[p] for p in asked],
                scheduled=Members(self.index, lambda p: due.time_has_come(p, self.now)),
                dirty=Members(self.index, lambda p: bool(due.flags[p] & DIRTY)),
                busy=Members(self.index, lambda p: bool(due.flags[p] & IN_FLIGHT) or self.ids[p] in self.behind.waits),
                barred=Members(self.index, lambda p: due.is_barred(p, self.now)),
                released=self.behind.released,
            ),
        )
        self.behind.add(found_plan)
        for unit in found_plan.units:
            positions = positions_of(unit.members, self.index)
            assert not (due.flags[positions] & IN_FLIGHT).any()
            due.queued(positions)
            self.jobs += 1
            self.queue.put("db", QueuedUnit(self.jobs, unit))
        due.pass_over(self.now)
        self.start()

    def start(self) -> None:
        limit = WorkerLimit(quota=0, max_concurrent=2)
        while (lease := self.queue.take({"db": len(self.running)}, {"db": limit}, 2)) is not None:
            assert len(self.running) < cap(limit, len(self.running), 2)
            new: dict[int, object] = {}
            for job in lease.jobs:
                seen = dict(self.content)  # one snapshot; a unit also sees what it writes
                for pgt_id in job.unit.members:
                    seen[pgt_id] = new[pgt_id] = self.computed(pgt_id, seen)
            self.running.append((self.now + self.random.choice([0.0, 0.4, 2.5]), self.now, lease, new))

    def finish(self) -> None:
        for entry in [e for e in self.running if e[0] <= self.now]:
            self.running.remove(entry)
            _, began, lease, new = entry
            for job in lease.jobs:
                failed = self.random.random() < 0.1
                for pgt_id in job.unit.members:
                    self.behind.done(pgt_id)
                    if failed:
                        self.due.failed(self.index[pgt_id], TransientError, self.now)
                        continue
                    if self.content.get(pgt_id) != new[pgt_id]:
                        readers = set(self.graph.consumers.get(pgt_id, ())) - set(job.unit.members)
                        self.due.mark(positions_of(readers, self.index), DIRTY)
                    self.content[pgt_id] = new[pgt_id]
                    self.due.done(positions_of([pgt_id], self.index), began)

    def is_quiet(self) -> bool:
        return not self.running and not len(self.queue) and not (self.due.flags & (DIRTY | EMPTY | REQUESTED)).any()


@pytest.mark.parametrize("seed", range(150))
def test_all_tables_become_current_when_changes_stop(seed: int) -> None:
    fleet = Fleet(Random(seed))
    for _ in range(60):
        if fleet.random.random() < 0.4:
            fleet.change()
        if fleet.random.random() < 0.05:
            fleet.due.mark(positions_of([fleet.random.choice(fleet.ids)], fleet.index), REQUESTED)
        fleet.tick()
    for _ in range(4_000):
        if fleet.is_quiet():
            break
        fleet.tick()
    assert fleet.is_quiet(), [(i, int(fleet.due.flags[p])) for i, p in fleet.index.items()]
    assert not fleet.behind.waits
    for pgt_id in sorted(fleet.ids, key=fleet.graph.order.__getitem__):
        assert fleet.content[pgt_id] == fleet.computed(pgt_id, fleet.content), pgt_id


def test_the_fleets_have_all_kinds() -> None:
    graphs = [Fleet(Random(seed)).graph for seed in range(150)]
    assert sum(bool(g.convergences) for g in graphs) > 50
    assert sum(any(not is_atomic(g.nodes[i]) for i in g.convergences) for g in graphs) > 30
    assert sum(any(b.is_slowest for b in g.bundles.values()) for g in graphs) > 15
    assert sum(bool(g.groups) for g in graphs) > 50
    assert sum(bool(g.calculated) for g in graphs) > 30
