"""Stream tables that read one another, at one instant: refreshed from one snapshot and committed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from pgtrickle.db import catalog
from pgtrickle.db.connect import begin, translated
from pgtrickle.model.catalog import StreamTable
from pgtrickle.refresh.decide import PREPARE
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.stages import PlannedWave
from pgtrickle.refresh.wave import WaveRefresher

# Transactions that may have begun between a chain's snapshot and its own: they are listed in its frontier.
MAX_BETWEEN = 5_000


@dataclass(frozen=True, slots=True)
class LevelStage:
    """The tables of one level. `apart` and `waiting` do not move in the chain's transaction: an author's session does
    not see what that has written, so below the first level such a table moves later, and with it what reads it."""

    going: tuple[StreamTable, ...]
    waiting: tuple[StreamTable, ...]
    apart: tuple[StreamTable, ...]


@dataclass(frozen=True, slots=True)
class ChainProgress:
    """How far a chain has come. `later`: tables that move afterwards, each by itself. `held`: relations of tables that
    did not move, or will move later."""

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
        """Tables that have to be loaded or prepared move later."""
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
    """Refreshes chains besides waves."""

    def chain(self, levels: Sequence[Sequence[int]]) -> tuple[list[Outcome], list[int]]:
        """Stream tables that read one another, at one instant: refreshed and committed together, upstream first.

        The applying transaction takes over the snapshot, so that it sees all base tables as of it and, besides, what it
        has itself written upstream. A table that fails is undone alone and holds what reads it. Returns outcomes, and
        the tables that have to be loaded, which is done afterwards, each by itself.
        """
        progress = ChainProgress()
        with self._at_one_instant() as found:
            if found is None:
                return [], [i for ids in levels for i in ids]
            inner, moment = found
            for number, ids in enumerate(levels):
                progress = inner.level(ids, moment, progress, is_first=number == 0)
        return list(progress.outcomes), list(progress.later)

    @contextmanager
    def _at_one_instant(self) -> Iterator[tuple[Self, catalog.ReadPoint] | None]:
        """A refresher that reads and writes in one transaction, at a snapshot of the base tables, and that moment.

        None when too many transactions began beside the snapshot for a frontier to list them.
        """
        with translated(), self._snapshot():
            moment = catalog.read_moment(self.reader)
            exported = self.reader.execute("SELECT pg_export_snapshot()").fetchone()
            assert exported is not None
            with self._joined(exported[0]) as xid:
                if xid - moment.cut.xmax > MAX_BETWEEN:
                    yield None
                    return
                limits = replace(self.limits, may_try_full=False)
                inner = type(self)(self.writer, self.writer, self.engine, self.compiled, limits, costs=self.costs)
                inner.snapshot_of = self.reader
                yield inner, replace(moment, cut=moment.cut.with_own(xid))

    def level(
        self, ids: Sequence[int], moment: catalog.ReadPoint, before: ChainProgress, *, is_first: bool
    ) -> ChainProgress:
        """One level of a chain, inside its transaction."""
        stage = level_stage(self._tables(ids), before, is_first=is_first)
        progress = before.with_level(stage)
        wave = self._plan(stage.going, moment)
        progress = progress.with_plan(wave)
        for computed in self._compute([p for p in wave.refreshes if not p.is_load], moment):
            if computed.planned.is_load:  # a value sent it to FULL
                progress = progress.postponed([computed.planned.table])
            else:
                progress = progress.with_outcome(self._finish(computed, moment, "SCHEDULER"))
        return progress

    @contextmanager
    def _joined(self, snapshot: str) -> Iterator[int]:
        """A transaction of the writer that sees what the snapshot sees; gives its own id."""
        begin(self.writer, "ISOLATION LEVEL REPEATABLE READ READ WRITE", snapshot=snapshot)
        try:
            row = self.writer.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
            assert row is not None
            yield row[0]
            self.writer.execute("COMMIT")
        finally:
            if not self.writer.closed:
                self.writer.rollback()
