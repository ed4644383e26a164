"""The broker's counts of the sources of one origin, and which changes need not be scanned again. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pgtrickle.model.flow import Cut

MOST_COUNTS = 1_000  # entries kept per source, to compute what is pending


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
    # Per poll: a transaction id that is later than those of all its changes, and the number of changes.
    _counts: deque[tuple[int, int]] = field(default_factory=deque)
    _pending: int = 0

    @property
    def pending(self) -> int:
        """An upper bound of the changes that the slowest reader has not read: changes of one poll count together."""
        return self._pending

    def restarted(self, generation: int) -> LedgerEntry:
        """An entry that restarts counting; the numbers of scans stay."""
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

    def set_sources(self, relids: Iterable[int]) -> None:
        """Sets the sources to count; counts of other sources are deleted."""
        sources = set(relids)
        self.entries = {relid: entry for relid, entry in self.entries.items() if relid in sources}
        for relid in sorted(sources - self.entries.keys()):
            self.entries[relid] = LedgerEntry(self._generation())

    def forget(self) -> None:
        """Restarts all counts after the server did not answer. It may have become a promoted standby, which reuses
        transaction ids: changes since the last cut cannot be counted."""
        self._cut = None
        self.entries = {relid: entry.restarted(self._generation()) for relid, entry in self.entries.items()}

    def scan_ranges(self) -> Sequence[tuple[int, Cut | None]]:
        """Each source, with the cut since which its changes must be counted."""
        return [(relid, entry.since) for relid, entry in self.entries.items()]

    def note(self, scanned: SourceScan, shares: Mapping[int, float]) -> set[int]:
        """Updates all counts. `shares`: per source, how many polls of readers this one replaces. Returns the
        sources that have changes, or whose counting restarted."""
        if self._cut is not None and not self._cut.precedes(scanned.cut):
            # The cut is older than the previous one, as after a restore: all counts are invalid.
            self.forget()
        self._cut = scanned.cut
        changed = set()
        for relid, entry in list(self.entries.items()):
            counted = scanned.sources.get(relid)
            if counted is None:  # it has no change buffer; a later one will be new
                if entry.since is not None:
                    self.entries[relid] = entry.restarted(self._generation())
                continue
            if entry.since is None or counted.changes:
                changed.add(relid)
            if entry.since is not None:
                entry.count += counted.changes
            entry.since = scanned.cut
            entry.max_lsn = max(entry.max_lsn, counted.max_lsn)
            entry.scans_done += 1
            entry.scans_saved += max(0.0, shares.get(relid, 1.0) - 1.0)
            entry.add(counted.changes, scanned.cut.xmax, counted.horizon)
        return changed
