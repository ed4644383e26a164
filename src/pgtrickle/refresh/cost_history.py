"""What refreshes have taken, per stream table: remembered here, and read from the history once, at first need.

A memory, not the truth: whoever starts anew reads the history again, and a refresh that somebody else did is missed.
Only AUTO's choice depends on it. So a refresh that is due reads nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from pgtrickle.db.statements import statement
from pgtrickle.model.catalog import StreamTable
from pgtrickle.refresh.cost_model import CostHistory, Sample

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


class CostHistoryCache:
    def __init__(self) -> None:
        self._pasts: dict[int, tuple[int, CostHistory]] = {}

    def read(self, conn: Connection, tables: Iterable[StreamTable]) -> None:
        """Makes sure that these tables' past is known."""
        unknown = {t.pgt_id: t.definition_version for t in tables if not self._knows(t)}
        if not unknown:
            return
        found: dict[int, list[Sample]] = {pgt_id: [] for pgt_id in unknown}
        for pgt_id, at, kind, rows, ms in conn.execute(statement("cost_samples"), {"ids": list(unknown)}):
            found[pgt_id].append(Sample(at, kind, rows, ms))
        for pgt_id, samples in found.items():
            self._pasts[pgt_id] = (unknown[pgt_id], CostHistory.of(samples))

    def past(self, table: StreamTable) -> CostHistory:
        return self._pasts[table.pgt_id][1] if self._knows(table) else CostHistory()

    def learn(self, table: StreamTable, kind: str, rows: int, ms: float, at: datetime) -> None:
        """Only of tables that were asked for: the others' history is read when they are."""
        if self._knows(table):
            sample = Sample(at.timestamp(), kind, rows, ms)
            self._pasts[table.pgt_id] = (table.definition_version, self.past(table).with_sample(sample))

    def forget(self, pgt_id: int) -> None:
        self._pasts.pop(pgt_id, None)

    def _knows(self, table: StreamTable) -> bool:
        entry = self._pasts.get(table.pgt_id)
        return entry is not None and entry[0] == table.definition_version
