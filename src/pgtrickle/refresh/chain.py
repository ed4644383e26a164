"""Chains: stream tables that read one another are refreshed from one snapshot and committed in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from pgtrickle.db import catalog
from pgtrickle.db.connect import at_snapshot, translated
from pgtrickle.model.catalog import StreamTable
from pgtrickle.refresh.decide import PREPARE
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.stages import PlannedWave
from pgtrickle.refresh.wave import WaveRefresher
from pgtrickle.tracing import span

# Transactions that may have started between a chain's snapshot and its own transaction; its frontier lists them.
MAX_BETWEEN = 5_000


@dataclass(frozen=True, slots=True)
class LevelStage:
    """The tables of one level. `apart` and `waiting` are not refreshed in the chain's transaction: an author's session
    does not see its uncommitted rows, so below the first level such a table, and its readers, are refreshed later."""

    going: tuple[StreamTable, ...]
    waiting: tuple[StreamTable, ...]
    apart: tuple[StreamTable, ...]


@dataclass(frozen=True, slots=True)
class ChainProgress:
    """The progress of a chain. `later`: tables that are refreshed afterwards, each by itself. `held`: relations of
    tables that were not refreshed, or will be later."""

    outcomes: tuple[Outcome, ...] = ()
    later: tuple[int, ...] = ()
    held: frozenset[int] = frozenset()

    def postponed(self, tables: Sequence[StreamTable]) -> ChainProgress:
        return replace(self, later=(*self.later, *(t.pgt_id for t in tables))).holding(tables)

    def holding(self, tables: Sequence[StreamTable]) -> ChainProgress:
        return replace(self, held=self.held | {t.relid for t in tables})

    def with_outcome(self, outcome: Outcome) -> ChainProgress:
        progress = replace(self, outcomes=(*self.outcomes, outcome))
        return progress if outcome.error is None else progress.holding([outcome.table])

    def with_level(self, stage: LevelStage) -> ChainProgress:
        progress = self.postponed(stage.apart)
        return progress.postponed(stage.waiting) if progress.later else progress.holding(stage.waiting)

    def with_plan(self, wave: PlannedWave) -> ChainProgress:
        """Tables that have to be loaded or prepared are refreshed later."""
        loads = [p.table for p in wave.refreshes if p.is_load]
        progress = self.postponed([*loads, *(o.table for o in wave.outcomes if o.action == PREPARE)])
        for outcome in wave.outcomes:
            if outcome.action != PREPARE:
                progress = progress.with_outcome(outcome)
        return progress


def level_stage(tables: Sequence[StreamTable], progress: ChainProgress, *, is_first: bool) -> LevelStage:
    going: list[StreamTable] = []
    waiting: list[StreamTable] = []
    apart: list[StreamTable] = []
    for table in tables:
        if table.runs_as_author and not is_first:
            apart.append(table)
        elif any(s.relid in progress.held for s in table.sources):
            waiting.append(table)
        else:
            going.append(table)
    return LevelStage(tuple(going), tuple(waiting), tuple(apart))


class ChainRefresher(WaveRefresher):
    """Refreshes chains and waves."""

    def chain(self, levels: Sequence[Sequence[int]]) -> tuple[list[Outcome], list[int]]:
        """Refreshes stream tables that read one another at one snapshot, upstream first, and commits them together.

        The apply transaction imports the snapshot, so that it sees all base tables at the snapshot, and its own writes
        to upstream tables. A table that fails is rolled back alone, and its readers are not refreshed. Returns
        outcomes, and the tables that have to be loaded afterwards, each by itself.
        """
        progress = ChainProgress()
        with self._in_one_transaction() as snapshot:
            if snapshot is None:
                return [], [i for ids in levels for i in ids]
            inner, moment = snapshot
            for number, ids in enumerate(levels):
                progress = inner.level(ids, moment, progress, is_first=number == 0)
        return list(progress.outcomes), list(progress.later)

    @contextmanager
    def _in_one_transaction(self) -> Iterator[tuple[Self, catalog.ReadPoint] | None]:
        """A refresher that reads and writes in one transaction at a snapshot of the base tables, and the read point.

        None if more than MAX_BETWEEN transactions started since the snapshot.
        """
        with translated(), self._snapshot():
            moment = catalog.read_moment(self.reader)
            exported = self.reader.execute("SELECT pg_export_snapshot()").fetchone()
            assert exported is not None
            with self._writer_at(exported[0]) as xid:
                if xid - moment.cut.xmax > MAX_BETWEEN:
                    yield None
                    return
                limits = replace(self.limits, is_in_chain=True)
                inner = type(self)(self.writer, self.writer, self.engine, self.compiled, limits, costs=self.costs)
                inner.snapshot_of = self.reader
                yield inner, replace(moment, cut=moment.cut.with_own(xid))

    def level(
        self, ids: Sequence[int], moment: catalog.ReadPoint, before: ChainProgress, *, is_first: bool
    ) -> ChainProgress:
        """One level of a chain, inside its transaction."""
        stage = level_stage(self._tables(ids), before, is_first=is_first)
        progress = before.with_level(stage)
        with span("plan", lambda: {"tables": [table.full_name for table in stage.going]}):
            wave = self._plan(stage.going, moment)
        progress = progress.with_plan(wave)
        for computed in self._compute([p for p in wave.refreshes if not p.is_load], moment):
            if computed.planned.is_load:  # it fell back to FULL
                progress = progress.postponed([computed.planned.table])
            else:
                progress = progress.with_outcome(self._finish(computed, moment, "SCHEDULER"))
        return progress

    @contextmanager
    def _writer_at(self, snapshot: str) -> Iterator[int]:
        """A transaction of the writer at the snapshot; yields its transaction id."""
        with at_snapshot(self.writer, snapshot):
            row = self.writer.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
            assert row is not None
            yield row[0]
