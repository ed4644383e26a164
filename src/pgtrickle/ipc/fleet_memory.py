"""The state of the processes of a fleet in shared memory: the pool of workers, each database's share, each scheduler.

Keyed by database (`system identifier/oid`): ids of two databases never collide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pgtrickle.ipc.segment import Layout, Records, Segment, fixed, text

MOST_DATABASES = 1_024
KEY, NAME = 48, 128

_POOL = np.dtype(
    [
        ("pid", "i4"),
        ("active", "i4"),
        ("most", "i4"),
        ("spark_jobs", "i8"),
        ("leases", "i8"),
        ("cache_hits", "i8"),
        ("cache_misses", "i8"),
        ("cache_entries", "i8"),
        ("cache_evictions", "i8"),
        ("since", "f8"),
        ("cache_max", "i8"),
        ("stored_hits", "i8"),
        ("stored_misses", "i8"),
        ("stored_entries", "i8"),
        ("stored_evictions", "i8"),
    ]
)
_SHARE = np.dtype(
    [
        ("key", f"S{KEY}"),
        ("name", f"S{NAME}"),
        ("used", "i4"),
        ("quota", "i4"),
        ("queued", "i4"),
        ("cap", "i4"),
        ("templates", "i4"),
        ("stored", "i4"),
    ]
)
_WORKER = np.dtype([("name", f"S{NAME}"), ("pid", "i4"), ("state", "S16"), ("since", "f8")])
MOST_WORKERS = 512
_SCHEDULER = np.dtype(
    [
        ("key", f"S{KEY}"),
        ("name", f"S{NAME}"),
        ("pid", "i4"),
        ("state", "S16"),
        ("since", "f8"),
        ("seen", "f8"),
        ("tick", "i8"),
        ("tables", "i4"),
        ("generation", "i8"),
    ]
)
_PROCESS = np.dtype([("kind", "S16"), ("pid", "i4"), ("state", "S16"), ("since", "f8")])
MOST_PROCESSES = 8

_HEAD = np.dtype([("slots", "i4")])  # number of scheduler sections that are or were in use

LAYOUT: Layout = {
    "head": (_HEAD, 1),
    "pool": (_POOL, 1),
    "shares": (_SHARE, MOST_DATABASES),
    "processes": (_PROCESS, MOST_PROCESSES),
    "workers": (_WORKER, MOST_WORKERS),
    **{f"scheduler{i}": (_SCHEDULER, 1) for i in range(MOST_DATABASES)},
}


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The workers of the pipeline."""

    pid: int = 0
    active: int = 0
    most: int = 0
    spark_jobs: int = 0
    leases: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_entries: int = 0
    cache_evictions: int = 0
    since: float = 0.0
    cache_max: int = 0
    stored_hits: int = 0
    stored_misses: int = 0
    stored_entries: int = 0
    stored_evictions: int = 0


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """One database's part of the pool. `quota`: guaranteed to it, 0 = none; `cap`: how many it may use at present."""

    key: str
    name: str
    used: int
    quota: int
    queued: int
    cap: int
    templates: int = 0  # of it in memory
    stored: int = 0  # templates that it has used and that are still stored


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The connections of a worker of a database: ACTIVE with a lease, or IDLE. `pid`: its backend; 0: a pooler's."""

    name: str
    pid: int
    state: str
    since: float


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """One scheduler. `seen`: its latest tick, seconds since the epoch."""

    key: str
    name: str
    pid: int
    state: str
    since: float
    seen: float
    tick: int
    tables: int
    generation: int


@dataclass(frozen=True, slots=True)
class ProcessState:
    """Launcher, pipeline, Spark."""

    kind: str
    pid: int
    state: str
    since: float


class FleetMemory:
    """Typed access to the segment. Each section has one writer: the launcher, the pipeline, one scheduler each."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._segment = Segment(path, LAYOUT, create=create)

    def write_pool(self, pool: PoolStatus) -> None:
        self._segment["pool"].write(lambda r: _fill(r, 0, pool))

    def pool(self) -> PoolStatus:
        records = self._segment["pool"].read()
        return PoolStatus() if records is None else PoolStatus(*records[0].item())

    def write_shares(self, shares: Sequence[WorkerShare]) -> None:
        def change(records: Records) -> None:
            records[:] = np.zeros((), records.dtype)
            for position, share in enumerate(shares[:MOST_DATABASES]):
                _fill(records, position, share)

        self._segment["shares"].write(change)

    def shares(self) -> list[WorkerShare]:
        records = self._segment["shares"].read()
        if records is None:
            return []
        return [WorkerShare(text(r[0]), text(r[1]), *r[2:]) for r in records[records["key"] != b""].tolist()]

    def write_workers(self, workers: Sequence[WorkerState]) -> None:
        def change(records: Records) -> None:
            records[:] = np.zeros((), records.dtype)
            for position, worker in enumerate(workers[:MOST_WORKERS]):
                _fill(records, position, worker)

        self._segment["workers"].write(change)

    def workers(self) -> list[WorkerState]:
        records = self._segment["workers"].read()
        if records is None:
            return []
        return [WorkerState(text(r[0]), r[1], text(r[2]), r[3]) for r in records[records["state"] != b""].tolist()]

    def write_processes(self, processes: Sequence[ProcessState]) -> None:
        def change(records: Records) -> None:
            records[:] = np.zeros((), records.dtype)
            for position, process in enumerate(processes[:MOST_PROCESSES]):
                _fill(records, position, process)

        self._segment["processes"].write(change)

    def processes(self) -> list[ProcessState]:
        records = self._segment["processes"].read()
        if records is None:
            return []
        return [ProcessState(text(r[0]), r[1], text(r[2]), r[3]) for r in records[records["pid"] != 0].tolist()]

    def write_scheduler(self, slot: int, state: SchedulerState | None) -> None:
        """None: the process has ended (written by the launcher)."""

        def change(records: Records) -> None:
            records[:] = np.zeros((), records.dtype)
            if state is not None:
                _fill(records, 0, state)

        self._segment[f"scheduler{slot}"].write(change)

    def scheduler(self, slot: int) -> SchedulerState | None:
        records = self._segment[f"scheduler{slot}"].read()
        if records is None or records[0]["pid"] == 0:
            return None
        row: tuple[Any, ...] = records[0].item()
        return SchedulerState(text(row[0]), text(row[1]), row[2], text(row[3]), *row[4:])

    def write_slots(self, slots: int) -> None:
        """Written by the launcher, also when a scheduler started or ended."""
        self._segment["head"].write(lambda records: records.fill((slots,)))

    def schedulers(self) -> list[SchedulerState]:
        head = self._segment["head"].read()
        found = (self.scheduler(slot) for slot in range(0 if head is None else int(head[0]["slots"])))
        return [state for state in found if state is not None]

    def version(self) -> tuple[int, ...]:
        """Changes when the pool, a share, a worker or a process changed, or a scheduler started or ended."""
        return tuple(self._segment[name].version for name in ("head", "pool", "shares", "processes", "workers"))


_WIDTHS: Mapping[str, int] = {"key": KEY, "name": NAME, "state": 16, "kind": 16}


def _fill(records: Records, position: int, value: object) -> None:
    for field in records.dtype.names or ():
        item = getattr(value, field)
        records[position][field] = fixed(item, _WIDTHS[field]) if isinstance(item, str) else item
