"""A fleet that does not fit on this machine: which resource saturates first, and at how many refreshes per second.

Simulated time, real code: each database has the schedule state, the graph and the plans of its scheduler
(`ScheduleState`, `Graph`, `plan`), and all units go through the dispatcher's `Queue` with its quotas. What refreshes
cost is measured, not simulated: CPU per table of the pipeline, PostgreSQL and Spark by `waves.py` (`--costs` takes its
last line), the rest by `idle.py` and `tick.py`. The CPU of the simulated schedulers and of the queue is that of the
real code, as it runs here.

A lease is read (pipeline and PostgreSQL), waits for the next of two Spark jobs at a time if its deltas are large
(`--large`, none by default), and is written (both again). A job costs what the yardstick of `waves.py` measured.
The pipeline is one process of Python, so one core at most does its work; every server of PostgreSQL has its own cores.
Not simulated: locks, networks, stream tables that read one another, queries that cost more than those of `waves.py`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from common.harness import note, report

from pgtrickle.dispatch.queue import Lease, Queue
from pgtrickle.dispatch.quota import WorkerLimit
from pgtrickle.dispatch.slots import MOST_BEGUN
from pgtrickle.model.work import SINGLETON, QueuedUnit, Unit
from pgtrickle.pipeline.engine.spark import SIDE_BY_SIDE
from pgtrickle.scheduler.graph import Graph
from pgtrickle.scheduler.schedule import interval_seconds
from pgtrickle.scheduler.state import Row, ScheduleState
from pgtrickle.scheduler.units import plan

SATURATED = 0.95
RATES = (50, 100, 200, 400, 800, 1600, 3200)


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU in milliseconds. `python`, `postgresql`, `spark`: per refreshed table (waves.py, case a). `job`: of a Spark
    job, whatever its size; `idle`: of a scheduler per second while nothing happens (idle.py). `scheduler_mib`: memory
    of a scheduler (idle.py)."""

    python: float
    postgresql: float
    spark: float
    job: ClassVar[float] = 30.0
    idle: float = 1.2
    scheduler_mib: float = 23.0


@dataclass(slots=True)
class Server:
    """Cores that serve one task each; tasks wait in the order in which they come."""

    cores: int
    free_at: list[float] = field(default_factory=list)
    busy: float = 0.0

    def __post_init__(self) -> None:
        self.free_at = [0.0] * self.cores

    def run(self, now: float, seconds: float) -> float:
        """When a task that comes now is done."""
        begun = max(now, heapq.heappop(self.free_at))
        heapq.heappush(self.free_at, begun + seconds)
        self.busy += seconds
        return begun + seconds


@dataclass(slots=True)
class Database:
    name: str
    schedule: ScheduleState
    graph: Graph
    server: Server
    jobs: int = 0


class Fleet:
    def __init__(self, given: argparse.Namespace, costs: Costs, rate: float) -> None:
        self.costs, self.rate, self.seconds, self.large = costs, rate, given.seconds, given.large
        self.chance = random.Random(1)
        self.pipeline, self.spark = Server(1), Server(given.spark_cores)
        self.servers = [Server(given.server_cores) for _ in range(given.servers)]
        rows = _rows(given.tables // given.databases, given.schedule)
        self.databases = [
            _database(f"db{i}", rows, self.servers[i % given.servers], self.chance) for i in range(given.databases)
        ]
        self.limits = {each.name: WorkerLimit() for each in self.databases}
        self.by_name = {each.name: each for each in self.databases}
        self.most = max(given.workers, MOST_BEGUN)
        self.queue, self.running = Queue(), Counter[str]()
        self.events: list[tuple[float, int, str, object]] = []
        self.number = 0
        self.waiting: deque[Lease] = deque()  # for the next Spark job
        self.spark_jobs = 0
        self.cpu = {"schedulers": 0.0, "dispatcher": 0.0}
        self.due_since: dict[tuple[str, int], float] = {}
        self.late: list[float] = []
        self.done = 0

    def at(self, when: float, what: str, of: object) -> None:
        self.number += 1
        heapq.heappush(self.events, (when, self.number, what, of))

    def run(self) -> None:
        for each in self.databases:
            self.at(self.chance.random(), "tick", each)
        while self.events and self.events[0][0] < self.seconds:
            now, _, what, of = heapq.heappop(self.events)
            getattr(self, f"_{what}")(now, of)

    def _tick(self, now: float, database: Database) -> None:
        """Each second: some tables have changes, and those that are due are queued."""
        self.at(now + 1, "tick", database)
        expected = self.rate / len(self.databases)
        number = int(expected) + (self.chance.random() < expected % 1)
        changed = self.chance.sample(range(1, len(database.schedule) + 1), min(number, len(database.schedule)))
        begun = time.process_time()
        database.schedule.changed(changed, now)
        turn = database.schedule.tick_input(now, (), ())
        if turn is not None:
            units = plan(database.graph, turn).units
            database.schedule.queued(units)
            database.schedule.passed(now)
            self.cpu["schedulers"] += time.process_time() - begun
            begun = time.process_time()
            for unit in units:
                database.jobs += 1
                self.queue.put(database.name, QueuedUnit(database.jobs, unit))
                self.due_since.update(((database.name, i), now) for i in unit.members)
            self.cpu["dispatcher"] += time.process_time() - begun
            self._assign(now)
        else:
            self.cpu["schedulers"] += time.process_time() - begun

    def _assign(self, now: float) -> None:
        begun = time.process_time()
        leases = []
        while (lease := self.queue.take(self.running, self.limits, self.most)) is not None:
            self.running[lease.database] += 1
            leases.append(lease)
        self.cpu["dispatcher"] += time.process_time() - begun
        for lease in leases:
            self.at(self._half(now, lease), "read", lease)

    def _half(self, now: float, lease: Lease) -> float:
        """Reading and writing take one half of the cost each; the pipeline sends, PostgreSQL answers."""
        tables = sum(job.unit.size for job in lease.jobs)
        sent = self.pipeline.run(now, tables * self.costs.python / 2000)
        return self.by_name[lease.database].server.run(sent, tables * self.costs.postgresql / 2000)

    def _read(self, now: float, lease: Lease) -> None:
        if self.large and self.chance.random() < self.large:
            self.waiting.append(lease)
            self._next_job(now)
        else:
            self.at(self._half(now, lease), "written", lease)

    def _next_job(self, now: float) -> None:
        if self.waiting and self.spark_jobs < SIDE_BY_SIDE:
            leases, self.waiting = list(self.waiting), deque()
            self.spark_jobs += 1
            tables = sum(job.unit.size for lease in leases for job in lease.jobs)
            self.at(self.spark.run(now, (self.costs.job + tables * self.costs.spark) / 1000), "computed", leases)

    def _computed(self, now: float, leases: Sequence[Lease]) -> None:
        self.spark_jobs -= 1
        for lease in leases:
            self.at(self._half(now, lease), "written", lease)
        self._next_job(now)

    def _written(self, now: float, lease: Lease) -> None:
        database = self.by_name[lease.database]
        self.running[lease.database] -= 1
        if not self.running[lease.database]:
            del self.running[lease.database]
        begun = time.process_time()
        for job in lease.jobs:
            for pgt_id in job.unit.members:
                database.schedule.finished(pgt_id, "ok", now, now)
                self.late.append(now - self.due_since.pop((lease.database, pgt_id)))
                self.done += 1
        self.cpu["schedulers"] += time.process_time() - begun
        self._assign(now)

    def result(self) -> dict[str, float | str]:
        idle = self.costs.idle / 1000 * len(self.databases)
        used = {
            "pipeline process": self.pipeline.busy / self.seconds + self.cpu["dispatcher"] / self.seconds,
            "Spark": self.spark.busy / self.seconds / self.spark.cores,
            "PostgreSQL servers": max(s.busy / self.seconds / s.cores for s in self.servers),
        }
        late = sorted(self.late) or [0.0]
        most = max(used, key=lambda name: used[name])
        return {
            "changed_tables_per_s": self.rate,
            "refreshes_per_s": round(self.done / self.seconds, 1),
            "waiting_at_end": len(self.queue),
            "late_s_median": round(late[len(late) // 2], 2),
            "late_s_p95": round(late[int(len(late) * 0.95)], 2),
            **{name: round(share, 2) for name, share in used.items()},
            "scheduler_cores": round(self.cpu["schedulers"] / self.seconds + idle, 2),
            "dispatcher_cores": round(self.cpu["dispatcher"] / self.seconds, 3),
            "saturated": most if used[most] >= SATURATED else "",
        }


def _rows(tables: int, schedule: str) -> list[Row]:
    """Tables of their own: each reads one of 20 sources."""
    return [
        Row(i, 10_000 + i, (i % 20 + 1,), schedule, "DIFFERENTIAL", "ACTIVE", True, False, False, 0.0, "hot", False,
            None, None, False, f"s{i}")
        for i in range(1, tables + 1)
    ]  # fmt: skip


def _database(name: str, rows: Sequence[Row], server: Server, chance: random.Random) -> Database:
    """All tables were refreshed at some time within the last period, and have no changes."""
    schedule = ScheduleState(0.0, tiered=False)
    schedule.load(rows, None, 0.0)
    schedule.queued([Unit(SINGLETON, ((row.pgt_id,),)) for row in rows])
    for row in rows:
        period = interval_seconds(row.schedule)
        assert period is not None
        schedule.finished(row.pgt_id, "ok", -chance.random() * period, 0.0)
    return Database(name, schedule, Graph.of(row.node() for row in rows), server)


def _measured() -> str:
    note("measuring what refreshes cost")
    waves = [
        sys.executable,
        str(Path(__file__).with_name("waves.py")),
        "--cases",
        "a",
        "--share",
        "0.4",
        "--rounds",
        "2",
    ]
    # Its bars are for the whole of it.
    return subprocess.run(waves, stdout=subprocess.PIPE, text=True, check=False).stdout


def _costs(text: str) -> Costs:
    """Of the output of waves.py. What Spark takes per table is what its jobs of one table take, without the cost of
    a job itself."""
    found = json.loads(text.splitlines()[-1])["a"]
    of_jobs = found["one_by_one_cpu_ms_per_table"]["spark"]
    return Costs(**{**found["cpu_ms_per_table"], "spark": max(0.0, of_jobs - Costs.job)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", type=int, default=1_000)
    parser.add_argument("--tables", type=int, default=100_000)
    parser.add_argument("--servers", type=int, default=50, help="of PostgreSQL, with the databases spread over them")
    parser.add_argument("--server-cores", type=int, default=4)
    parser.add_argument("--spark-cores", type=int, default=4)
    parser.add_argument("--workers", type=int, default=16, help="max_dynamic_refresh_workers")
    parser.add_argument("--schedule", default="10s")
    parser.add_argument("--large", type=float, default=0.0, help="share of the leases whose deltas need a Spark job")
    parser.add_argument("--seconds", type=float, default=60.0, help="of simulated time")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="tables that change per second")
    parser.add_argument("--costs", type=Path, help="a file whose last line is that of waves.py; default: it is run")
    given = parser.parse_args()
    costs = _costs(_measured() if given.costs is None else given.costs.read_text())
    found = []
    for rate in given.rates:
        fleet = Fleet(given, costs, rate)
        fleet.run()
        found.append(fleet.result())
        note(json.dumps(found[-1]))
        if found[-1]["saturated"]:
            break
    first = next((each for each in found if each["saturated"]), None)
    report(
        "simulate",
        ok=first is not None,
        databases=given.databases,
        tables=given.tables,
        saturates_first=first["saturated"] if first else None,
        most_refreshes_per_s=max(float(each["refreshes_per_s"]) for each in found),
        scheduler_memory_gib=round(given.databases * costs.scheduler_mib / 1024, 1),
        results=found,
    )


if __name__ == "__main__":
    main()
