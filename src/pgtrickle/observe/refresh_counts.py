"""Counts of finished refreshes and units since the first read of this process, for metrics.

Each read continues where the last one ended. A refresh gets its number before it commits, so one with a smaller number
may appear later: each read begins some numbers earlier and skips those that were counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgtrickle.db.statements import statement
from pgtrickle.observe.state import FinishedUnit, Refresh

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

ROWS_PER_READ = 5_000  # of one read; the rest is read next time
OVERLAP = 500  # numbers before the end of the last read that are read again

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
ROWS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0)
MEMBERS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0)


@dataclass(slots=True)
class Histogram:
    """Observations by upper bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as the exposition format has them."""
        running, cumulative = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            cumulative.append((bound, float(running)))
        return cumulative


class _Tail:
    """The numbers of one history that have been counted. Rows before the first read are not counted."""

    def __init__(self, end: int) -> None:
        self._begin = end
        self.after = end
        self._counted: set[int] = set()

    def take(self, numbers: Iterable[int]) -> set[int]:
        """Those that have not been counted yet; the next read begins some numbers before the last one."""
        new = set(numbers) - self._counted
        self._counted |= new
        if self._counted:
            self.after = max(self._begin, max(self._counted) - OVERLAP)
            self._counted = {number for number in self._counted if number > self.after}
        return new


class RefreshCounts:
    """The counts of one database."""

    def __init__(self) -> None:
        self._tails: tuple[_Tail, _Tail] | None = None
        self.durations: dict[tuple[str, str], Histogram] = {}  # mode, engine
        self.windows: dict[str, Histogram] = {}  # mode
        self.stages: dict[str, float] = {}  # seconds
        self.refreshes: Counter[tuple[str, str, str]] = Counter()  # mode, engine, status
        self.errors: Counter[str] = Counter()
        self.inserted = 0
        self.deleted = 0
        self.units: Counter[tuple[str, str]] = Counter()  # kind, status
        self.waits = Histogram(SECONDS)
        self.members = Histogram(MEMBERS)

    def read(self, conn: Connection) -> None:
        if self._tails is None:
            ((refresh, job),) = conn.execute(statement("observed_last_ids")).fetchall()
            self._tails = _Tail(refresh), _Tail(job)
            return
        refreshes, units = self._tails
        cursor = conn.execute(statement("observed_refreshes"), {"after": refreshes.after, "most": ROWS_PER_READ})
        finished = [Refresh(*row) for row in cursor.fetchall()]
        new = refreshes.take(refresh.refresh_id for refresh in finished)
        for refresh in finished:
            if refresh.refresh_id in new:
                self.add(refresh)
        cursor = conn.execute(statement("observed_finished_units"), {"after": units.after, "most": ROWS_PER_READ})
        ended = [FinishedUnit(*row) for row in cursor.fetchall()]
        new = units.take(unit.job_id for unit in ended)
        for unit in ended:
            if unit.job_id in new:
                self.add_unit(unit)

    def add(self, refresh: Refresh) -> None:
        mode, engine = refresh.action.lower(), refresh.engine or "none"
        self.refreshes[mode, engine, refresh.status.lower()] += 1
        if refresh.status == "FAILED":
            self.errors[refresh.error_code or "other"] += 1
            return
        self.durations.setdefault((mode, engine), Histogram(SECONDS)).observe(refresh.seconds)
        if refresh.changes is not None:
            self.windows.setdefault(mode, Histogram(ROWS)).observe(refresh.changes)
        self.inserted += refresh.inserted or 0
        self.deleted += refresh.deleted or 0
        for stage, ms in (refresh.timings or {}).items():
            self.stages[stage] = self.stages.get(stage, 0.0) + float(ms) / 1000

    def add_unit(self, unit: FinishedUnit) -> None:
        self.units[unit.kind, unit.status.lower()] += 1
        self.members.observe(unit.members)
        if unit.waited is not None:
            self.waits.observe(unit.waited)
