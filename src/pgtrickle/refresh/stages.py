"""The stages of one table's refresh, each a frozen value that one function makes of the one before:

planned (what is to be done) -> read (signed rows) -> netted (by Spark) -> computed (what is to be written) -> applied.

A stage that fails gives a FailedRefresh instead. A load is read while it is written, so it is computed as soon as it is
planned.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from pgtrickle.apply.bags import BagDelta
from pgtrickle.apply.commit import CommittedRefresh, RefreshRecord
from pgtrickle.apply.groups import GroupDelta
from pgtrickle.db.handover import Handover
from pgtrickle.define.compile import Compiled
from pgtrickle.errors import InvariantError, PgtrickleError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.flow import Cut, Delta, Pending, Timings, Window
from pgtrickle.pipeline.engine.frames import DeltaRows
from pgtrickle.pipeline.templates.stages import ChangeStages
from pgtrickle.pipeline.templates.template import Template
from pgtrickle.refresh.decide import DIFFERENTIAL, NO_DATA, Decision
from pgtrickle.refresh.job import Outcome

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class PlannedRefresh:
    """What is to be done for a table, from what the snapshot shows of its sources. `timings` is the table's stopwatch,
    which all stages add to."""

    table: StreamTable
    compiled: Compiled
    decision: Decision
    since: Cut | None
    pending: Mapping[int, Pending]
    fingerprints: dict[int, str | None]
    started_at: datetime
    timings: Timings
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # of its author, where the session has others
    is_silent: bool = False  # only its frontier moves, along with others': nothing for the history
    place: Handover | None = None  # where its author's session reads; None: it is evaluated by us

    @property
    def is_load(self) -> bool:
        return self.decision.action not in (DIFFERENTIAL, NO_DATA)

    @property
    def is_differential(self) -> bool:
        return self.decision.action == DIFFERENTIAL

    @property
    def changes(self) -> int:
        """Rows that have changed in its sources."""
        return sum(p.rows for p in self.pending.values())

    @property
    def stages(self) -> ChangeStages:
        if self.compiled.stages.changes is None:
            raise InvariantError("a table without a template was to be refreshed from its changes")
        return self.compiled.stages.changes

    @property
    def template(self) -> Template:
        return self.stages.read.template

    def window(self, upto: Cut) -> Window:
        if self.since is None:
            raise InvariantError("a table that stands at no cut was to be refreshed from its changes")
        return Window(self.since, upto)


@dataclass(frozen=True, slots=True)
class ReadRefresh:
    """The signed rows that the changes bring, not netted yet."""

    planned: PlannedRefresh
    rows: pa.Table | DeltaRows


@dataclass(frozen=True, slots=True)
class NettedRefresh:
    """What Spark has made of them."""

    planned: PlannedRefresh
    delta: Delta


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing but the frontier moves."""


@dataclass(frozen=True, slots=True)
class WholeContent:
    """The result of the query, read at the snapshot while it is written, replaces what is there."""


@dataclass(frozen=True, slots=True)
class Refill:
    """The kept rows of a LIMIT, read anew: too few were left."""

    batches: Sequence[pa.Table]


Content = BagDelta | GroupDelta | Refill | WholeContent | Unchanged


@dataclass(frozen=True, slots=True)
class ComputedRefresh:
    """What is to be written."""

    planned: PlannedRefresh
    content: Content

    def has_more_rows_than(self, rows: int) -> bool:
        if isinstance(self.content, BagDelta | GroupDelta):
            return len(self.content) > rows
        return isinstance(self.content, WholeContent)


@dataclass(frozen=True, slots=True)
class FailedRefresh:
    """A stage failed."""

    planned: PlannedRefresh
    error: PgtrickleError

    def outcome(self) -> Outcome:
        return Outcome(self.planned.table, self.planned.decision.action, self.planned.decision.reason, self.error)


@dataclass(frozen=True, slots=True)
class AppliedRefresh:
    """What was written, in a transaction that is not committed yet."""

    planned: PlannedRefresh
    record: RefreshRecord
    inserted: int
    deleted: int

    def committed(self) -> CommittedRefresh:
        return CommittedRefresh(self.record, self.inserted, self.deleted, self.planned.timings.to_json())

    def outcome(self) -> Outcome:
        return Outcome(
            self.planned.table,
            self.record.action,
            self.record.reason,
            None,
            self.inserted,
            self.deleted,
            self.planned.timings.to_json(),
        )


Computed = ComputedRefresh | FailedRefresh


@dataclass(frozen=True, slots=True)
class PlannedWave:
    """What the tables of a wave need, and the outcomes of those that there is nothing to do for, that failed or that
    have to be prepared first."""

    refreshes: tuple[PlannedRefresh, ...]
    outcomes: tuple[Outcome, ...]


def without_read(planned: PlannedRefresh) -> ComputedRefresh:
    """Of a table whose changes are not read: it is loaded, or only its frontier moves."""
    return ComputedRefresh(planned, WholeContent() if planned.is_load else Unchanged())


Action = TypeVar("Action")
Settings = Mapping[str, tuple[str, str]]


def by_settings(
    actions: Iterable[tuple[PlannedRefresh, Action]],
) -> list[tuple[Settings, list[tuple[PlannedRefresh, Action]]]]:
    """Those that are evaluated under the same settings together; mostly that is all of them."""
    found: dict[frozenset[tuple[str, tuple[str, str]]], list[tuple[PlannedRefresh, Action]]] = {}
    for planned, action in actions:
        found.setdefault(frozenset(planned.settings.items()), []).append((planned, action))
    return [(together[0][0].settings, together) for together in found.values()]


@contextmanager
def timed(planned: PlannedRefresh, part: str) -> Iterator[None]:
    """Counts when it fails, too: what was given up has taken its time."""
    begun = time.perf_counter()
    try:
        yield
    finally:
        planned.timings.add(part, (time.perf_counter() - begun) * 1000)


@contextmanager
def timed_together(planned: Sequence[PlannedRefresh], part: str) -> Iterator[None]:
    """What of the time is no table's own (round trips, texts, temporary tables) is counted to all of them alike."""
    begun, own = time.perf_counter(), sum(each.timings.total_ms for each in planned)
    try:
        yield
    finally:
        own = sum(each.timings.total_ms for each in planned) - own
        rest = (time.perf_counter() - begun) * 1000 - own
        for each in planned:
            each.timings.add(part, max(rest, 0.0) / len(planned))
