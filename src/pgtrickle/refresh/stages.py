"""The stages of one table's refresh. Each is a frozen value that one function computes from the previous one:

planned (decision) -> read (signed rows) -> netted (few by the worker, many by Spark) -> computed (content to write) ->
applied.

A stage that fails returns a FailedRefresh instead. A load is read while it is written, so its planned stage is followed
by the computed one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
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
from pgtrickle.model.fingerprint import by_versions
from pgtrickle.model.flow import Cut, Delta, DeltaSizes, Frontier, Pending, Timings, Window
from pgtrickle.pipeline.engine.frames import DeltaRows
from pgtrickle.pipeline.templates.stages import ChangeStages
from pgtrickle.pipeline.templates.template import Template
from pgtrickle.refresh.decide import DIFFERENTIAL, NO_DATA, Decision
from pgtrickle.refresh.engine_choice import PUSHED_DOWN, EngineChoice
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.spark_changes import GroupChanges, RowChanges
from pgtrickle.tracing import span

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.catalog import ReadPoint


@dataclass(frozen=True, slots=True)
class PlannedRefresh:
    """The decision for a table, from the state of its sources at the snapshot. All stages add their times to
    `timings` and their numbers of rows to `sizes`."""

    table: StreamTable
    compiled: Compiled
    decision: Decision
    since: Cut | None
    pending: Mapping[int, Pending]
    fingerprints: dict[int, str | None]
    started_at: datetime  # its wave
    timings: Timings
    settings: Mapping[str, tuple[str, str]] = field(
        default_factory=dict
    )  # of its author, if the session has other values
    is_silent: bool = False  # only its frontier advances, with those of other tables: not in the history
    engine: EngineChoice = PUSHED_DOWN
    place: Handover | None = None  # the snapshot for its author's session; None: our session evaluates it
    sizes: DeltaSizes = field(default_factory=DeltaSizes)

    @property
    def is_load(self) -> bool:
        return self.decision.action not in (DIFFERENTIAL, NO_DATA)

    @property
    def is_differential(self) -> bool:
        return self.decision.action == DIFFERENTIAL

    @property
    def changes(self) -> int:
        """The number of changed rows of its sources."""
        return sum(p.rows for p in self.pending.values())

    @property
    def stages(self) -> ChangeStages:
        if self.compiled.stages.changes is None:
            raise InvariantError("a table without a template cannot be refreshed differentially")
        return self.compiled.stages.changes

    @property
    def template(self) -> Template:
        return self.stages.read.template

    def window(self, upto: Cut) -> Window:
        if self.since is None:
            raise InvariantError("a table without a cut cannot be refreshed differentially")
        return Window(self.since, upto)


@dataclass(frozen=True, slots=True)
class ReadRefresh:
    """The signed rows of the delta, not netted yet."""

    planned: PlannedRefresh
    rows: pa.Table | DeltaRows


@dataclass(frozen=True, slots=True)
class NettedRefresh:
    """The netted delta."""

    planned: PlannedRefresh
    delta: Delta


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Only the frontier advances."""


@dataclass(frozen=True, slots=True)
class WholeContent:
    """The result of the query, read at the snapshot while it is written, replaces the stored rows."""


@dataclass(frozen=True, slots=True)
class Refill:
    """The stored rows of a LIMIT, read again because too few were left."""

    batches: Sequence[pa.Table]


@dataclass(frozen=True, slots=True)
class EngineDelta:
    """A delta that Spark computed: in memory, or in a staging table that executors filled. `changes` describes how to
    read it from a staging table."""

    changes: RowChanges | GroupChanges
    table: pa.Table | None
    stage: str | None = None

    def has_more_rows_than(self, rows: int) -> bool:
        return self.table is None or len(self.table) > rows


Content = BagDelta | GroupDelta | EngineDelta | Refill | WholeContent | Unchanged


@dataclass(frozen=True, slots=True)
class ComputedRefresh:
    """The content to write."""

    planned: PlannedRefresh
    content: Content

    def has_more_rows_than(self, rows: int) -> bool:
        if isinstance(self.content, BagDelta | GroupDelta):
            return len(self.content) > rows
        if isinstance(self.content, EngineDelta):
            return self.content.has_more_rows_than(rows)
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
    """The result of writing, in a transaction that is not committed yet."""

    planned: PlannedRefresh
    record: RefreshRecord
    inserted: int
    deleted: int

    def committed(self) -> CommittedRefresh:
        timings = self.planned.timings
        return CommittedRefresh(
            self.record,
            self.inserted,
            self.deleted,
            timings.to_json(),
            timings.source_ms,
            timings.is_cold,
            timings.share_ms,
            self.planned.sizes.to_json({relid: p.rows for relid, p in self.planned.pending.items()}),
        )

    def outcome(self) -> Outcome:
        return Outcome(
            self.planned.table,
            self.record.action,
            self.record.reason,
            None,
            self.inserted,
            self.deleted,
            self.planned.timings.to_json(),
            self.planned.engine,
            share_ms=self.planned.timings.share_ms,
        )


Computed = ComputedRefresh | FailedRefresh


@dataclass(frozen=True, slots=True)
class PlannedWave:
    """The planned refreshes of a wave, and the outcomes of tables that are unchanged, that failed or that have to be
    prepared first."""

    refreshes: tuple[PlannedRefresh, ...]
    outcomes: tuple[Outcome, ...]


def without_read(planned: PlannedRefresh) -> ComputedRefresh:
    """The content of a table without a delta: a load, or only the frontier advances."""
    return ComputedRefresh(planned, WholeContent() if planned.is_load else Unchanged())


def refresh_record(planned: PlannedRefresh, moment: ReadPoint, initiated_by: str) -> RefreshRecord:
    """What the catalog records of a refresh at `moment`."""
    table = planned.table
    return RefreshRecord(
        table.pgt_id,
        table.epoch,
        {**(table.origins or {}), **Frontier({moment.instance.key: moment.cut}).to_json()},
        moment.time,
        planned.started_at,
        planned.decision.action,
        planned.decision.reason,
        "INITIAL" if not table.is_populated else "MANUAL" if table.refresh_requested else initiated_by,
        planned.changes,
        table.refresh_requested_at,
        _fingerprints(planned),
        {"time_zone": moment.time_zone, "functions": table.functions},
        planned.engine.engine,
        planned.engine.reason,
    )


def _fingerprints(planned: PlannedRefresh) -> dict[int, str | None]:
    """An author's session may have ended before the refresh commits: see `model.fingerprint`."""
    if not planned.table.runs_as_author:
        return planned.fingerprints
    return {relid: text and by_versions(text) for relid, text in planned.fingerprints.items()}


Action = TypeVar("Action")
Settings = Mapping[str, tuple[str, str]]


def by_settings(
    actions: Iterable[tuple[PlannedRefresh, Action]],
) -> list[tuple[Settings, list[tuple[PlannedRefresh, Action]]]]:
    """Groups actions with the same settings; usually there is one group."""
    groups: dict[frozenset[tuple[str, tuple[str, str]]], list[tuple[PlannedRefresh, Action]]] = {}
    for planned, action in actions:
        groups.setdefault(frozenset(planned.settings.items()), []).append((planned, action))
    return [(group[0][0].settings, group) for group in groups.values()]


def require_stored(planned: PlannedRefresh) -> None:
    """PostgreSQL would evaluate the query over mirrors without rows, and find nothing."""
    if planned.table.remotes:
        raise InvariantError(f"{planned.table.full_name} reads tables of other databases, which only Spark can")


@contextmanager
def timed(planned: PlannedRefresh, part: str) -> Iterator[None]:
    """Adds the elapsed time to `part`, also if the block fails. A stage has a span in traces."""
    begun = time.perf_counter()
    try:
        with span(part, lambda: {"table": planned.table.full_name}):
            yield
    finally:
        planned.timings.add(part, (time.perf_counter() - begun) * 1000)


@contextmanager
def timed_together(planned: Sequence[PlannedRefresh], part: str) -> Iterator[None]:
    """Divides shared time (round trips, building statements, temporary tables) equally among the tables."""
    begun, own = time.perf_counter(), sum(each.timings.total_ms for each in planned)
    try:
        with span(part, lambda: {"tables": [each.table.full_name for each in planned]}) if planned else nullcontext():
            yield
    finally:
        own = sum(each.timings.total_ms for each in planned) - own
        rest = (time.perf_counter() - begun) * 1000 - own
        for each in planned:
            each.timings.add(part, max(rest, 0.0) / len(planned))
