"""The waiting units of all databases, and which of them the next free worker gets. Pure; not thread-safe.

A worker gets a *lease*: one database and units of one band of it, so that they can be read at one snapshot and share
a wave. The database is chosen in this order:

1. IMMEDIATE units of any database;
2. databases with fewer workers than guaranteed;
3. the band;
4. workers in use relative to the guarantee;
5. the age of the oldest unit.

Within a band of a database: tier, topological order, age. All units of a lease end together, so units whose latest
refresh took long share a lease only with one another, and do not delay the others. To prevent starvation, every eighth
lease begins with the oldest unit, if eight leases have overtaken it: a unit with k older ones is taken within about
8 (k + 1) leases of its database.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from pgtrickle.dispatch.quota import WorkerLimit, cap
from pgtrickle.model.work import BANDS, IMMEDIATE, QueuedUnit

MOST_MEMBERS = 50  # stream tables of a lease: they share snapshots and transactions, which should stay short
FEWEST_MEMBERS = 10  # below, the fixed cost of a Spark job outweighs the gain of parallel work
OLDEST_EVERY = 8
LONG_MS = 1_000.0  # a refresh that takes longer counts as long
MOST_SKIPPED = 200  # units of the other kind that are passed over to fill a lease

_FIRST = BANDS[IMMEDIATE]
_SPARE = 64  # stale entries that a heap may have in addition to the number of its live ones


@dataclass(frozen=True, slots=True)
class Lease:
    """The next work of one worker."""

    database: str
    jobs: tuple[QueuedUnit, ...]


@dataclass(slots=True)
class _Line:
    """The waiting units of one band of one database. `number`: a sequence number, the age of a unit."""

    database: str
    band: int
    jobs: OrderedDict[int, tuple[QueuedUnit, int]] = field(
        default_factory=OrderedDict
    )  # number -> job, leases before it
    heap: list[tuple[int, int, int]] = field(default_factory=list)  # tier, order, number; taken ones are removed later
    tables: int = 0

    @property
    def oldest(self) -> int:
        return next(iter(self.jobs))

    def put(self, number: int, job: QueuedUnit, turn: int) -> None:
        self.jobs[number] = job, turn
        self.tables += job.unit.size
        heappush(self.heap, (job.unit.tier, job.unit.order, number))

    def remove(self, number: int) -> QueuedUnit:
        job, _ = self.jobs.pop(number)
        self.tables -= job.unit.size
        if len(self.heap) > 2 * len(self.jobs) + _SPARE:
            self.heap = [entry for entry in self.heap if entry[2] in self.jobs]
            heapify(self.heap)
        return job

    def best(self) -> int:
        while self.heap[0][2] not in self.jobs:
            heappop(self.heap)
        return self.heap[0][2]


class Queue:
    """All waiting units. Each operation costs O(log units), `take` also O(workers * log databases)."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[int, _Line]] = {}  # no empty ones
        self._where: dict[str, dict[int, tuple[int, int]]] = {}  # database -> job_id -> band, number
        # Per band: lines by their oldest unit. An entry whose unit is no longer its line's oldest is stale.
        self._ages: dict[int, list[tuple[int, str]]] = {band: [] for band in sorted(set(BANDS.values()))}
        self._live: dict[int, int] = dict.fromkeys(self._ages, 0)
        self._long: dict[str, set[int]] = {}  # database -> tables whose latest refresh took long
        self._numbers = 0
        self._leases = 0

    def put(self, database: str, job: QueuedUnit) -> None:
        where = self._where.setdefault(database, {})
        if job.job_id in where:
            raise ValueError(f"job {job.job_id} of {database} waits already")
        band = BANDS[job.unit.kind]
        number = self._numbers = self._numbers + 1
        lines = self._lines.setdefault(database, {})
        if band not in lines:
            lines[band] = _Line(database, band)
            self._live[band] += 1
        line = lines[band]
        line.put(number, job, self._leases)
        if line.oldest == number:
            self._note_age(line)
        where[job.job_id] = band, number

    def note_durations(self, database: str, shares_ms: Iterable[tuple[int, float]]) -> None:
        """The latest refreshes of tables: pgt_id and milliseconds."""
        known = self._long.setdefault(database, set())
        for pgt_id, ms in shares_ms:
            (known.add if ms > LONG_MS else known.discard)(pgt_id)

    def forget_durations(self, database: str) -> None:
        self._long.pop(database, None)

    def cancel(self, database: str, job_id: int) -> QueuedUnit | None:
        """Withdraws a unit. None: it is not waiting."""
        queued = self._where.get(database, {}).get(job_id)
        return None if queued is None else self._remove(self._lines[database][queued[0]], queued[1])

    def drop(self, database: str) -> tuple[QueuedUnit, ...]:
        """Withdraws all units of a database, oldest first."""
        numbered = {n: job for line in self._lines.pop(database, {}).values() for n, (job, _) in self._gone(line)}
        self._where.pop(database, None)
        return tuple(numbered[n] for n in sorted(numbered))

    def waiting(self, database: str) -> int:
        return len(self._where.get(database, ()))

    def __len__(self) -> int:
        return sum(map(len, self._where.values()))

    def take(self, running: Mapping[str, int], limits: Mapping[str, WorkerLimit], max_workers: int) -> Lease | None:
        """The next lease; None if no worker is free, or if no database with waiting units may have another one.

        running: workers in use by each database. limits: of each database with waiting units.
        """
        active = sum(running.values())
        if active >= max_workers:
            return None
        busy = {d: n for d, n in running.items() if n > 0}
        full = {d for d, n in busy.items() if d in self._lines and n >= cap(limits[d], active, max_workers)}
        line = self._longest_waiting(full)
        first = line.oldest if line is not None else None
        if line is None:
            line = self._most_deserving(busy, full, limits)
        if line is None:
            return None
        self._leases += 1
        used = busy.get(line.database, 0)
        # Each other waiting database may need one of the free workers.
        free = min(cap(limits[line.database], active, max_workers) - used, max_workers - active - len(self._lines) + 1)
        return Lease(line.database, self._cut(line, first, max(1, free)))

    def _cut(self, line: _Line, first: int | None, workers: int) -> tuple[QueuedUnit, ...]:
        """The best units of a line up to its share; at least one, however large."""
        room = min(MOST_MEMBERS, max(FEWEST_MEMBERS, -(-line.tables // workers)))
        taken: list[QueuedUnit] = []
        others: list[tuple[int, int, int]] = []  # of the other kind: they stay in line
        is_long = False
        while len(others) < min(len(line.jobs), MOST_SKIPPED):
            number = first if first is not None else line.best()
            first = None
            job = line.jobs[number][0]
            if not taken:
                is_long = self._is_long(line, job)
            elif self._is_long(line, job) != is_long:
                others.append(heappop(line.heap))
                continue
            if taken and job.unit.size > room:
                break
            room -= job.unit.size
            taken.append(self._remove(line, number))
        for entry in others:
            heappush(line.heap, entry)
        return tuple(taken)

    def _is_long(self, line: _Line, job: QueuedUnit) -> bool:
        return not self._long.get(line.database, set()).isdisjoint(job.unit.members)

    def _longest_waiting(self, full: set[str]) -> _Line | None:
        """The line of the oldest unit, if it has to be taken now regardless of priorities."""
        if (self._leases + 1) % OLDEST_EVERY:
            return None
        lines = [line for band in self._ages if (line := self._oldest(band, full)) is not None]
        line = min(lines, key=lambda each: each.oldest, default=None)
        if line is None or self._leases - line.jobs[line.oldest][1] < OLDEST_EVERY:
            return None
        return line

    def _most_deserving(
        self, busy: Mapping[str, int], full: set[str], limits: Mapping[str, WorkerLimit]
    ) -> _Line | None:
        candidates: list[tuple[tuple[bool, bool, int, float, int], _Line]] = []
        for database, used in busy.items():
            if database in self._lines and database not in full:
                line = self._lines[database][min(self._lines[database])]
                base = limits[database].guaranteed
                candidates.append(((line.band != _FIRST, used >= base, line.band, used / base, line.oldest), line))
        for band in self._ages:  # databases without a worker: the oldest unit of the best band
            idle = self._oldest(band, busy)
            if idle is not None:
                candidates.append(((band != _FIRST, False, band, 0.0, idle.oldest), idle))
                break
        return min(candidates, key=lambda each: each[0])[1] if candidates else None

    def _oldest(self, band: int, without: Mapping[str, int] | set[str]) -> _Line | None:
        """The line of this band with the oldest unit, without some databases (at most as many as there are workers)."""
        heap = self._ages[band]
        aside: list[tuple[int, str]] = []
        oldest = None
        while heap and oldest is None:
            number, database = heap[0]
            line = self._lines.get(database, {}).get(band)
            if line is None or line.oldest != number:
                heappop(heap)
            elif database in without:
                aside.append(heappop(heap))
            else:
                oldest = line
        for entry in aside:
            heappush(heap, entry)
        return oldest

    def _remove(self, line: _Line, number: int) -> QueuedUnit:
        was_oldest = number == line.oldest
        job = line.remove(number)
        del self._where[line.database][job.job_id]
        if not line.jobs:
            self._live[line.band] -= 1
            del self._lines[line.database][line.band]
            if not self._lines[line.database]:
                del self._lines[line.database], self._where[line.database]
        elif was_oldest:
            self._note_age(line)
        return job

    def _gone(self, line: _Line) -> list[tuple[int, tuple[QueuedUnit, int]]]:
        self._live[line.band] -= 1
        return list(line.jobs.items())

    def _note_age(self, line: _Line) -> None:
        heap = self._ages[line.band]
        heappush(heap, (line.oldest, line.database))
        if len(heap) > 2 * self._live[line.band] + _SPARE:
            lines = [each[line.band] for each in self._lines.values() if line.band in each]
            self._ages[line.band] = [(each.oldest, each.database) for each in lines]
            heapify(self._ages[line.band])
