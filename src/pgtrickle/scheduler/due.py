"""Which stream tables are due: one array per property, indexed by table. Pure; times are seconds since 1970.

A table is due for one of three reasons, if it is active, not in progress and not backing off:

* it is requested: by a user, for its first load, for a new load, or because something that it reads was redefined;
* its schedule is due and changes are pending;
* its schedule is due and it needs no changes: it depends on the clock, or a source is not captured.

A table in progress is not due again until it is done. Its reasons are set aside when it is queued; a reason that
arrives in between makes it due afterwards, and a failure restores the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from pgtrickle.errors import (
    EngineLostError,
    FencedError,
    OriginAwayError,
    PgtrickleError,
)
from pgtrickle.scheduler.schedule import CALCULATED, interval_seconds, next_cron

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

# Reasons.
DIRTY, CLOCK, UNCAPTURED = 1, 2, 4
REQUESTED, EMPTY, REINIT, REDEFINED = 8, 16, 32, 512
# Obstacles. FROZEN: by a pin; it blocks only the schedule. ERRED is none: the last refresh failed, and is tried again.
INACTIVE, IN_FLIGHT, FROZEN, ERRED = 64, 128, 256, 1024

ASKED = REQUESTED | EMPTY | REINIT | REDEFINED
_REASONS = DIRTY | CLOCK | UNCAPTURED | ASKED
_SPENT = DIRTY | ASKED  # reasons that a refresh consumes; the clock remains

MOST_BACKOFF_SECONDS = 60.0
MOST_AWAY_SECONDS = 5.0  # as long as the poller of that database backs off


def retry_after(error: type[PgtrickleError], failures: int) -> float:
    """Seconds until a table is retried after this number of consecutive failures. Whatever the error: a bad row may be
    gone, a column may be back, a privilege may be granted again."""
    if issubclass(error, FencedError):
        return 0.0  # another worker did it
    if issubclass(error, EngineLostError):
        return 1.0  # no table is at fault, so none backs off
    most = MOST_AWAY_SECONDS if issubclass(error, OriginAwayError) else MOST_BACKOFF_SECONDS
    return float(min(2.0 ** (min(failures, 32) - 1), most))


@dataclass(frozen=True, slots=True)
class Members:
    """pgt_ids with a property, without listing them: for `units.TickInput`."""

    positions: Mapping[int, int]
    test: Callable[[int], bool]
    unknown: bool = False  # the answer for those that have no position

    def __contains__(self, pgt_id: object) -> bool:
        position = self.positions.get(pgt_id) if isinstance(pgt_id, int) else None
        return self.unknown if position is None else self.test(position)


@dataclass(slots=True)
class Due:
    """One entry per stream table in each column."""

    schedules: Sequence[str]
    flags: npt.NDArray[np.uint16]
    period: Floats  # seconds; NaN for those without a duration
    multiplier: Floats  # of its tier
    last: Floats  # when its latest refresh began; -inf: never
    next_due: Floats
    backoff_until: Floats
    failures: npt.NDArray[np.int32]
    aside: npt.NDArray[np.uint16]  # reasons of tables in progress
    cron: Positions

    @classmethod
    def of(
        cls, schedules: Sequence[str], flags: npt.ArrayLike, last: npt.ArrayLike, is_immediate: npt.ArrayLike
    ) -> Due:
        """flags: from the catalog. last: -inf for tables without a refresh. IMMEDIATE tables need no schedule."""
        count = len(schedules)
        period = np.full(count, np.nan)
        immediate = np.array(is_immediate, dtype=np.bool_)
        cron = []
        for position, schedule in enumerate(schedules):
            seconds = interval_seconds(schedule)
            if immediate[position]:
                continue
            if seconds is not None:
                period[position] = seconds
            elif schedule.strip().lower() != CALCULATED:
                cron.append(position)
        due = cls(
            schedules=schedules,
            flags=np.array(flags, dtype=np.uint16),
            period=period,
            multiplier=np.ones(count),
            last=np.array(last, dtype=np.float64),
            next_due=np.full(count, -np.inf),
            backoff_until=np.full(count, -np.inf),
            failures=np.zeros(count, dtype=np.int32),
            aside=np.zeros(count, dtype=np.uint16),
            cron=np.array(cron, dtype=np.intp),
        )
        due.arm(np.arange(count))
        return due

    def joined(self, stay: Positions, more: Due) -> Due:
        """The entries at `stay`, followed by `more`."""
        is_cron = np.zeros(len(self.flags), dtype=np.bool_)
        is_cron[self.cron] = True
        columns = [f.name for f in fields(self) if f.name not in ("schedules", "cron")]
        return Due(
            schedules=[*(self.schedules[p] for p in stay.tolist()), *more.schedules],
            cron=np.concatenate([np.flatnonzero(is_cron[stay]), more.cron + len(stay)]),
            **{name: np.concatenate([getattr(self, name)[stay], getattr(more, name)]) for name in columns},
        )

    def keep(self, old: Due, positions: Positions) -> None:
        """Copies state that is not in the catalog when the tables are reloaded: positions in `old`, -1 for new ones.

        Tables in progress, and only later reasons: the catalog still contains those of the current refresh.
        Backoff, unless the table is active again after a stop.
        """
        here = np.flatnonzero(positions >= 0)
        there = positions[here]
        self.flags[here] |= old.flags[there] & (DIRTY | REDEFINED | IN_FLIGHT)
        self.aside[here] = old.aside[there]
        flying = here[old.flags[there] & IN_FLIGHT != 0]
        self.flags[flying] &= ~(old.aside[positions[flying]] & np.uint16(ASKED))
        self.flags[flying] |= old.flags[positions[flying]] & np.uint16(ASKED)
        same = (self.flags[here] ^ old.flags[there]) & (INACTIVE | ERRED) == 0
        self.backoff_until[here[same]] = old.backoff_until[there[same]]
        self.failures[here[same]] = old.failures[there[same]]

    def arm(self, positions: Positions) -> None:
        """When their schedules are due next, from their latest refresh."""
        with np.errstate(invalid="ignore"):  # -inf for those that have none, whatever the period
            by_period = self.last[positions] + self.period[positions] * self.multiplier[positions]
        self.next_due[positions] = np.where(np.isnan(by_period), -np.inf, by_period)
        for position in np.intersect1d(positions, self.cron):
            self.next_due[position] = self._slot(position, self.last[position])

    def _slot(self, position: int, after: float) -> float:
        if after == -np.inf:
            return after
        return next_cron(self.schedules[position], datetime.fromtimestamp(after, UTC)).timestamp()

    def set_multiplier(self, positions: Positions, multiplier: Floats) -> None:
        """Their tier has changed: their due time is recomputed from their latest refresh. Cron has no tier."""
        self.multiplier[positions] = multiplier
        self.arm(positions[~np.isnan(self.period[positions])])

    def mark(self, positions: Positions, reason: int) -> None:
        self.flags[positions] |= reason

    def clear(self, positions: Positions, reason: int) -> None:
        self.flags[positions] &= np.uint16(0xFFFF & ~reason)

    def due(self, now: float) -> Positions:
        """All that are due. Costs one pass over the flags, and more only for tables that have a reason."""
        candidates: Positions = np.flatnonzero(self.flags & _REASONS != 0)
        flags = self.flags[candidates]
        by_time = (self.next_due[candidates] <= now) & (flags & FROZEN == 0)
        may = (flags & (INACTIVE | IN_FLIGHT) == 0) & (self.backoff_until[candidates] <= now)
        due: Positions = candidates[may & (by_time | (flags & ASKED != 0))]
        return due

    def asked(self, positions: Positions) -> Positions:
        """Tables that do not wait for their schedule."""
        found: Positions = positions[self.flags[positions] & ASKED != 0]
        return found

    def time_has_come(self, position: int, now: float) -> bool:
        """Whether one table is due. A suspended or frozen table does not block its upstream tables."""
        return bool(self.next_due[position] <= now) and not self.flags[position] & IN_FLIGHT

    def is_barred(self, position: int, now: float) -> bool:
        """Whether it must not be refreshed, neither by itself nor together with others."""
        flags = self.flags[position]
        frozen = flags & FROZEN and not flags & ASKED
        return bool(flags & INACTIVE or frozen or self.backoff_until[position] > now)

    def queued(self, positions: Positions) -> None:
        """They are queued: their reasons are set aside."""
        self.aside[positions] = self.flags[positions] & _SPENT
        self.clear(positions, _SPENT)
        self.mark(positions, IN_FLIGHT)

    def done(self, positions: Positions, began: float) -> None:
        """Refreshed from a snapshot taken at `began` or later."""
        self.clear(positions, IN_FLIGHT)
        self.aside[positions] = 0
        self.failures[positions] = 0
        self.backoff_until[positions] = -np.inf
        self.last[positions] = began
        self.arm(positions)

    def returned(self, positions: Positions) -> None:
        """Not refreshed without a failure: cancelled, or their worker or process ended. Their reasons are restored."""
        self.clear(positions, IN_FLIGHT)
        self.flags[positions] |= self.aside[positions]
        self.aside[positions] = 0

    def failed(self, position: int, error: type[PgtrickleError], now: float) -> None:
        """A failed table is retried after a pause, or, if it is suspended, when the catalog changes."""
        self.returned(np.array([position]))
        if not issubclass(error, EngineLostError | FencedError):
            self.failures[position] += 1
        self.backoff_until[position] = now + retry_after(error, int(self.failures[position]))

    def end_backoff(self) -> None:
        self.backoff_until[:] = -np.inf

    def pass_over(self, now: float) -> None:
        """Called after each tick: a cron slot without changes is skipped.

        A later change waits for the next slot. Slots of tables that are blocked (in progress, backing
        off, suspended) stay.
        """
        late = self.cron[self.next_due[self.cron] <= now]
        for position in late:
            obstacle = self.flags[position] & (INACTIVE | IN_FLIGHT) or self.backoff_until[position] > now
            if not obstacle and not self.flags[position] & _REASONS and self.last[position] > -np.inf:
                self.next_due[position] = self._slot(position, now)

    def next_due_time(self, now: float, passed: float = -np.inf) -> float:
        """When a table may become due without an event; inf: never. For the sleep between ticks.

        passed: tables that were due before have been handled.
        """
        found = np.flatnonzero(self.flags & _REASONS != 0)
        found = found[self.flags[found] & (INACTIVE | IN_FLIGHT) == 0]
        flags = self.flags[found]
        times = np.where(flags & ASKED != 0, -np.inf, np.where(flags & FROZEN == 0, self.next_due[found], np.inf))
        times = np.maximum(times, self.backoff_until[found])
        if passed > -np.inf:
            times = times[times > passed]
        return float(np.min(np.maximum(times, now), initial=np.inf))

    def next_wake_time(self) -> float:
        """From when on a change makes a table due that has none yet; inf: never. Cron tables wait for their slot."""
        obstacles = DIRTY | CLOCK | UNCAPTURED | ASKED | INACTIVE | IN_FLIGHT | FROZEN
        may = self.flags & obstacles == 0
        may[self.cron] = False
        return float(np.min(np.maximum(self.next_due[may], self.backoff_until[may]), initial=np.inf))


def positions_of(pgt_ids: Iterable[int], index: Mapping[int, int]) -> Positions:
    """Positions of known tables."""
    return np.array([index[i] for i in pgt_ids if i in index], dtype=np.intp)
