"""The state of the sources of stream tables at a snapshot: everything that planning a refresh reads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pgtrickle.apply.commit import RefreshRecord
from pgtrickle.capture.fingerprint import fingerprints as current_fingerprints
from pgtrickle.define.compile import Compiled
from pgtrickle.model.catalog import Source, StreamTable
from pgtrickle.model.fingerprint import by_versions, unchanged
from pgtrickle.model.flow import Cut, Pending, Timings, Window
from pgtrickle.refresh.pending import WindowQuery

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class WaveStart:
    """When planning began: wall-clock time and monotonic clock, and the number of tables."""

    at: datetime
    clock: float
    tables: int

    def timings(self) -> Timings:
        """With what planning has taken so far."""
        timings = Timings()
        timings.add("plan", (time.perf_counter() - self.clock) * 1000, self.tables)
        return timings


@dataclass(frozen=True, slots=True)
class ObservedSources:
    """`cuts`: of each table's content. `pending`: by table and source. `sizes`: the planner's row estimates."""

    fingerprints: Mapping[int, str | None]
    cuts: Mapping[int, Cut | None]
    pending: Mapping[int, Mapping[int, Pending]]
    sizes: Mapping[int, float]


def window_queries(
    table: StreamTable, window: Window, fingerprints: Mapping[int, str | None], compiled: Compiled | None
) -> dict[int, WindowQuery]:
    """The windows to count, by source. A source whose structure changed is omitted, because its buffer may not exist
    any more; `decide` handles it."""
    return {
        source.relid: (source.relid, window, _columns(table, source, compiled))
        for source in table.captured
        if unchanged(table.fingerprints.get(source.relid), fingerprints.get(source.relid), ())
    }


def _columns(table: StreamTable, source: Source, compiled: Compiled | None) -> frozenset[int] | None:
    """The columns with relevant changes; None: all changes are relevant, because the table is recomputed."""
    if compiled is None or compiled.template is None or table.effective_mode == "FULL":
        return None
    return source.captured_columns


def with_confirmed_meanings(conn: Connection, records: Mapping[int, RefreshRecord]) -> dict[int, RefreshRecord]:
    """Records of loads, which another transaction may have read: its locks on the sources are gone. They keep the
    meanings of columns only if nothing was altered since the snapshot. `conn` must not be at that snapshot."""
    current = current_fingerprints(conn, {relid for record in records.values() for relid in record.fingerprints})
    return {
        pgt_id: replace(
            record,
            fingerprints={
                relid: text if text == current.get(relid) or text is None else by_versions(text)
                for relid, text in record.fingerprints.items()
            },
        )
        for pgt_id, record in records.items()
    }
