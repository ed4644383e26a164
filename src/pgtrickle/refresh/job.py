"""A stream table on its way through a wave, and how it fared."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgtrickle.db.handover import Handover
from pgtrickle.define.compile import Compiled
from pgtrickle.errors import InvariantError, PgtrickleError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.flow import Cut, Delta, Pending, Timings
from pgtrickle.model.reasons import Reason
from pgtrickle.pipeline.engine.frames import DeltaRows
from pgtrickle.pipeline.templates.template import Template
from pgtrickle.refresh.decide import DIFFERENTIAL, NO_DATA, Decision

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one table fared.

    `error` is set when it failed; action PREPARE asks the caller to prepare the table and come again, with a reason
    when it has to be loaded anew then.
    """

    table: StreamTable
    action: str
    reason: Reason | None = None
    error: PgtrickleError | None = None
    inserted: int = 0
    deleted: int = 0
    timings: dict[str, float] = field(default_factory=dict)
    rounds: int | None = None  # of a cycle, until nothing came any more


@dataclass(slots=True)
class TableRefresh:
    """A table on its way through the wave."""

    table: StreamTable
    compiled: Compiled
    decision: Decision
    since: Cut | None
    pending: Mapping[int, Pending]
    fingerprints: dict[int, str | None]
    started_at: datetime
    timings: Timings
    leaf: pa.Table | DeltaRows | None = None
    delta: Delta | None = None
    arrays: list[Sequence[Any]] | None = None
    refill: list[pa.Table] | None = None  # the kept rows of a LIMIT anew, instead of arrays
    error: PgtrickleError | None = None
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # of its author, where the session has others
    is_silent: bool = False  # only its frontier moves, along with others': nothing for the history
    place: Handover | None = None  # where its author's session reads; None: it is evaluated by us

    @property
    def is_load(self) -> bool:
        return self.decision.action not in (DIFFERENTIAL, NO_DATA)

    @property
    def template(self) -> Template:
        if self.compiled.template is None:
            raise InvariantError("a table without a template was to be refreshed from its changes")
        return self.compiled.template


def by_settings(jobs: Iterable[TableRefresh]) -> list[tuple[Mapping[str, tuple[str, str]], list[TableRefresh]]]:
    """Those that are evaluated under the same settings together; mostly that is all of them."""
    found: dict[frozenset[tuple[str, tuple[str, str]]], list[TableRefresh]] = {}
    for job in jobs:
        found.setdefault(frozenset(job.settings.items()), []).append(job)
    return [(together[0].settings, together) for together in found.values()]


@contextmanager
def timed(job: TableRefresh, part: str) -> Iterator[None]:
    """Counts when it fails, too: what was given up has taken its time."""
    begun = time.perf_counter()
    try:
        yield
    finally:
        job.timings.add(part, (time.perf_counter() - begun) * 1000)


@contextmanager
def timed_together(jobs: Sequence[TableRefresh], part: str) -> Iterator[None]:
    """What of the time is no table's own (round trips, texts, temporary tables) is counted to all of them alike."""
    begun, own = time.perf_counter(), sum(job.timings.total_ms for job in jobs)
    try:
        yield
    finally:
        own = sum(job.timings.total_ms for job in jobs) - own
        rest = (time.perf_counter() - begun) * 1000 - own
        for job in jobs:
            job.timings.add(part, max(rest, 0.0) / len(jobs))
