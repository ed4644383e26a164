"""The broker's counts of the sources of one origin, and which changes need not be scanned again. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pgtrickle.model.flow import Cut

MOST_COUNTS = 1_000  # kept per source, to know what is pending


@dataclass(frozen=True, slots=True)
class SourceCount:
    """The count of one source. `horizon`: all readers in other databases have read transactions before it."""

    changes: int
    max_lsn: int
    horizon: int


@dataclass(frozen=True, slots=True)
class SourceScan:
    """The result of one statement, for the sources that have a buffer."""

    origin: str  # the database that has answered, which may not be the expected one
    cut: Cut
    sources: Mapping[int, SourceCount]


@dataclass(slots=True)
class LedgerEntry:
    """One source. `count` grows with every change that became visible since the entry was made; `generation` is another
    one whenever counting restarted, so that unrelated counts are never compared."""

    generation: int
    since: Cut | None = None
    count: int = 0
    max_lsn: int = 0
    scans_done: int = 0
    scans_saved: float = 0.0
    _counts: deque[tuple[int, int]] = field(default_factory=deque)  # (all transactions are before this one, changes)
    _pending: int = 0

    @property
    def pending(self) -> int:
        """Changes that the slowest reader may not have read: of each poll all or nothing."""
        return self._pending

    def anew(self, generation: int) -> LedgerEntry:
        """Restarts counting; earlier counts stay."""
        return LedgerEntry(generation, scans_done=self.scans_done, scans_saved=self.scans_saved)

    def add(self, changes: int, upto: int, horizon: int) -> None:
        if changes:
            self._counts.append((upto, changes))
            self._pending += changes
        while self._counts and self._counts[0][0] <= horizon:
            self._pending -= self._counts.popleft()[1]
        if len(self._counts) > MOST_COUNTS:
            first, second = self._counts.popleft(), self._counts.popleft()
            self._counts.appendleft((second[0], first[1] + second[1]))


class Ledger:
    """`generation` returns a number that was never used before, also not by an earlier process."""

    def __init__(self, generation: Callable[[], int]) -> None:
        self._generation = generation
        self._cut: Cut | None = None
        self.entries: dict[int, LedgerEntry] = {}

    def want(self, relids: Iterable[int]) -> None:
        """Sets the sources."""
        wanted = set(relids)
        self.entries = {relid: entry for relid, entry in self.entries.items() if relid in wanted}
        for relid in sorted(wanted - self.entries.keys()):
            self.entries[relid] = LedgerEntry(self._generation())

    def forget(self) -> None:
        """The server did not answer. When it answers again it may be a promoted standby, whose transactions have ids
        that others had before: what became visible since cannot be counted."""
        self._cut = None
        self.entries = {relid: entry.anew(self._generation()) for relid, entry in self.entries.items()}

    def questions(self) -> Sequence[tuple[int, Cut | None]]:
        return [(relid, entry.since) for relid, entry in self.entries.items()]

    def note(self, scanned: SourceScan, shares: Mapping[int, float]) -> set[int]:
        """Updates all counts. `shares`: per source, how many polls of readers this one replaces. Returns the
        sources that have changes, or whose counting restarted."""
        if self._cut is not None and not self._cut.precedes(scanned.cut):
            # The server has gone back in time, as after a restore: all counts are invalid.
            self.forget()
        self._cut = scanned.cut
        news = set()
        for relid, entry in list(self.entries.items()):
            counted = scanned.sources.get(relid)
            if counted is None:  # no buffer: a new one is another buffer
                if entry.since is not None:
                    self.entries[relid] = entry.anew(self._generation())
                continue
            if entry.since is None or counted.changes:
                news.add(relid)
            if entry.since is not None:
                entry.count += counted.changes
            entry.since = scanned.cut
            entry.max_lsn = max(entry.max_lsn, counted.max_lsn)
            entry.scans_done += 1
            entry.scans_saved += max(0.0, shares.get(relid, 1.0) - 1.0)
            entry.add(counted.changes, scanned.cut.xmax, counted.horizon)
        return news
