"""A cache of the costs of refreshes, per stream table. It is filled from the refresh history at the first use.

A new process reads the history again, and the cache does not contain refreshes by other processes. Only the choice of
AUTO depends on it. So a refresh does not read the history.
"""

from __future__ import annotations

from collections.abc import Iterable
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
        """Reads the history of these tables, unless it is cached."""
        unknown = {t.pgt_id: t.definition_version for t in tables if not self._knows(t)}
        if not unknown:
            return
        by_table: dict[int, list[Sample]] = {pgt_id: [] for pgt_id in unknown}
        for pgt_id, *sample in conn.execute(statement("cost_samples"), {"ids": list(unknown)}):
            by_table[pgt_id].append(Sample(*sample))
        for pgt_id, samples in by_table.items():
            self._pasts[pgt_id] = (unknown[pgt_id], CostHistory.of(samples))

    def past(self, table: StreamTable) -> CostHistory:
        return self._pasts[table.pgt_id][1] if self._knows(table) else CostHistory()

    def learn(self, table: StreamTable, sample: Sample) -> None:
        """Adds a sample, if the history of the table is cached; otherwise it is read at the first use."""
        if self._knows(table):
            self._pasts[table.pgt_id] = (table.definition_version, self.past(table).with_sample(sample))

    def forget(self, pgt_id: int) -> None:
        self._pasts.pop(pgt_id, None)

    def _knows(self, table: StreamTable) -> bool:
        entry = self._pasts.get(table.pgt_id)
        return entry is not None and entry[0] == table.definition_version
