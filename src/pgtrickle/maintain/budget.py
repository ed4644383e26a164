"""The resource budget of a fleet: processes, connections and memory, per part and per database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pgtrickle.dispatch.quota import SERIAL, WORKER_CONNECTIONS, WorkerLimit, cap
from pgtrickle.dispatch.slots import MOST_BEGUN
from pgtrickle.settings import Settings

# MiB of a fleet of ten databases with five stream tables each, loaded and then idle for 40 s (benchmarks/idle.py,
# Linux, Python 3.11, /proc/<pid>/smaps_rollup): Rss of those that are alone, Pss of a scheduler (the median of ten),
# which shares half of its Rss of 47 with the fork server. It takes 1.5 KiB more per stream table (benchmarks/tick.py).
LAUNCHER_MIB = 77  # 65, and 12 for the resource tracker of multiprocessing
FORK_SERVER_MIB = 50
SCHEDULER_MIB = 23  # 21 of them its own
PIPELINE_MIB = 176  # most of it PySpark's client, pandas and pyarrow
# Right after their imports.
GUARD_MIB = 13  # the process that ends Spark when its owner has ended
LOAD_WORKER_MIB = 85  # 83; a Python worker of Spark that reads and writes a part of a large load
BROKER_MIB = 55  # Pss, at work
# Beside the heap (metaspace, code cache, threads, Arrow's own memory), late in a run of the 22 queries of TPC-H at
# scale 1 (benchmarks/spark_queries.py): 603. Late in a run of all tests, two servers: 530 and 577.
SPARK_OVERHEAD_MIB = 600
# An estimate, not measured.
WORKER_MIB = 5  # a thread of the pipeline: driver buffers and the rows of a small refresh

LAUNCHER_CONNECTIONS = 1  # holds the advisory lock
SCHEDULER_CONNECTIONS = 1
BROKER_CONNECTIONS = 1  # per database
LOOK_CONNECTIONS = 1  # per database and other database that it mirrors tables of: while no broker answers for it
ORIGIN_CONNECTIONS = 2  # of the pipeline, per database that others mirror tables of
LOAD_CONNECTIONS = 2  # per part, in addition to those of the worker that supervises it


@dataclass(frozen=True, slots=True)
class Cost:
    """Maximum resources."""

    processes: int = 0
    connections: int = 0
    mib: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.processes + other.processes, self.connections + other.connections, self.mib + other.mib)

    def times(self, count: int) -> Cost:
        return Cost(self.processes * count, self.connections * count, self.mib * count)


@dataclass(frozen=True, slots=True)
class BudgetItem:
    """A number of parts of one kind, and their sum."""

    name: str
    count: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class DatabaseBudget:
    """One database: its scheduler, and its maximum number of workers."""

    database: str
    workers: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class ConnectionRoom:
    """The connections of a server. `others` are those that other applications use."""

    max_connections: int
    reserved: int
    others: int

    @property
    def ours(self) -> int:
        return max(0, self.max_connections - self.reserved - self.others)


@dataclass(frozen=True, slots=True)
class Budget:
    """`parts` add up to `total`; `shares` do not, since databases share the workers."""

    parts: tuple[BudgetItem, ...]
    shares: tuple[DatabaseBudget, ...]
    total: Cost


def budget(
    fleet: Settings, databases: Mapping[str, Settings], *, load_parts: int, mirrored: Iterable[Collection[str]] = ()
) -> Budget:
    """For the existing databases, or for `max_databases` if that is more; for one if none is known.

    `load_parts`: number of parts of a bulk load. One bulk load at a time is counted.
    `mirrored`: for each database, the origins of its mirrors.
    """
    workers = fleet.max_dynamic_refresh_workers
    count = max(1, len(databases), fleet.max_databases)
    scheduler = Cost(1, SCHEDULER_CONNECTIONS, SCHEDULER_MIB)
    worker = Cost(0, WORKER_CONNECTIONS, WORKER_MIB)
    begun = sum(_most_leases(own, workers) for own in databases.values())
    begun += (count - len(databases)) * _most_leases(fleet, workers)
    aside = max(0, min(MOST_BEGUN, begun) - workers)
    parts = [
        BudgetItem("launcher", 1, Cost(2, LAUNCHER_CONNECTIONS, LAUNCHER_MIB)),
        BudgetItem("fork server", 1, Cost(1, 0, FORK_SERVER_MIB)),
        BudgetItem("pipeline", 1, Cost(1, 0, PIPELINE_MIB)),
    ]
    if fleet.enable_refresh_broker or any(own.enable_refresh_broker for own in databases.values()):
        parts.append(BudgetItem("broker", 1, Cost(1, BROKER_CONNECTIONS * count, BROKER_MIB)))
    others = [origin for origins in mirrored for origin in origins]
    if others:
        connections = LOOK_CONNECTIONS * len(others) + ORIGIN_CONNECTIONS * len(set(others))
        parts.append(BudgetItem("sessions at origins", len(set(others)), Cost(0, connections)))
    load = Cost(0, LOAD_CONNECTIONS * load_parts)
    if not fleet.spark_remote:
        parts.append(BudgetItem("spark", 1, Cost(2, 0, fleet.spark_driver_memory_mb + SPARK_OVERHEAD_MIB + GUARD_MIB)))
        load += Cost(load_parts, 0, LOAD_WORKER_MIB * load_parts)
    parts += [
        BudgetItem("schedulers", count, scheduler.times(count)),
        BudgetItem("workers", workers, worker.times(workers)),
        BudgetItem("workers waiting for Spark", aside, worker.times(aside)),
        BudgetItem("bulk load", 1, load),
    ]
    shares = tuple(
        DatabaseBudget(name, most, scheduler + worker.times(most))
        for name, most in ((name, _most_workers(own, workers)) for name, own in databases.items())
    )
    return Budget(tuple(parts), shares, _sum(part.cost for part in parts))


def shortage(needed: Cost, room: ConnectionRoom) -> str | None:
    """The remedy if there are too few connections; None if there are enough."""
    if needed.connections <= room.ours:
        return None
    more = needed.connections - room.ours
    return f"raise max_connections by {more}, or lower max_dynamic_refresh_workers"


def _most_workers(own: Settings, workers: int) -> int:
    return min(workers, _most_leases(own, workers))


def _most_leases(own: Settings, workers: int) -> int:
    """At a time, including leases that wait for Spark."""
    limit = WorkerLimit(own.per_database_worker_quota, own.max_concurrent_refreshes)
    if own.parallel_refresh_mode != "on":
        limit = SERIAL
    return cap(limit, 0, workers)


def _sum(costs: Iterable[Cost]) -> Cost:
    return sum(costs, Cost())
