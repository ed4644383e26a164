"""What a snapshot shows of the sources of stream tables: all that planning their refresh reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pgtrickle.define.compile import Compiled
from pgtrickle.model.catalog import Source, StreamTable
from pgtrickle.model.fingerprint import unchanged
from pgtrickle.model.flow import Cut, Pending, Window
from pgtrickle.refresh.pending import Wanted


@dataclass(frozen=True, slots=True)
class Begun:
    """When planning began, by the calendar and by the stopwatch."""

    at: datetime
    clock: float


@dataclass(frozen=True, slots=True)
class ObservedSources:
    """`cuts`: where each table stands. `pending`: by table and source. `sizes`: the planner's idea of each source."""

    fingerprints: Mapping[int, str | None]
    cuts: Mapping[int, Cut | None]
    pending: Mapping[int, Mapping[int, Pending]]
    sizes: Mapping[int, float]


def wanted_windows(
    table: StreamTable, window: Window, fingerprints: Mapping[int, str | None], compiled: Compiled | None
) -> dict[int, Wanted]:
    """What is asked of each source. Of one whose structure changed not even the buffer may be there any more; `decide`
    sees to that."""
    return {
        source.relid: (source.relid, window, _columns(table, source, compiled))
        for source in table.captured
        if unchanged(table.fingerprints.get(source.relid), fingerprints.get(source.relid), ())
    }


def _columns(table: StreamTable, source: Source, compiled: Compiled | None) -> frozenset[int] | None:
    """The columns whose changes matter; None where all do, because the table is recomputed."""
    if compiled is None or compiled.template is None or table.effective_mode == "FULL":
        return None
    return source.columns
