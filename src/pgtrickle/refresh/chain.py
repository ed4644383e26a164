"""Stream tables that read one another, at one instant: refreshed from one snapshot and committed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from pgtrickle.db import catalog
from pgtrickle.db.connect import begin, translated
from pgtrickle.refresh.decide import PREPARE
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.wave import WaveRefresher

# Transactions that may have begun between a chain's snapshot and its own: they are listed in its frontier.
MAX_BETWEEN = 5_000


class ChainRefresher(WaveRefresher):
    """Refreshes chains besides waves."""

    def chain(self, levels: Sequence[Sequence[int]]) -> tuple[list[Outcome], list[int]]:
        """Stream tables that read one another, at one instant: refreshed and committed together, upstream first.

        The applying transaction takes over the snapshot, so that it sees all base tables as of it and, besides, what it
        has itself written upstream. A table that fails is undone alone and holds what reads it. Returns outcomes, and
        the tables that have to be loaded, which is done afterwards, each by itself.
        """
        outcomes: list[Outcome] = []
        later: list[int] = []
        with self._at_one_instant() as found:
            if found is None:
                return [], [i for ids in levels for i in ids]
            inner, moment = found
            held: set[int] = set()
            for number, ids in enumerate(levels):
                inner.level(ids, moment, outcomes, later, held, is_first=number == 0)
        return outcomes, later

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
        self,
        ids: Sequence[int],
        moment: catalog.ReadPoint,
        outcomes: list[Outcome],
        later: list[int],
        held: set[int],
        *,
        is_first: bool,
    ) -> None:
        """One level of a chain, inside its transaction. `held` are the tables that did not move, or will move later.

        An author's session does not see what this transaction has written: below the first level such a table moves
        later, and with it what reads it.
        """
        tables = self._tables(ids)
        apart = [t for t in tables if t.runs_as_author and not is_first]
        later += [t.pgt_id for t in apart]
        waiting = [t for t in tables if t not in apart and held & {s.relid for s in t.sources}]
        later += [t.pgt_id for t in waiting if later]
        waiting += apart
        held |= {t.relid for t in waiting}
        found: list[Outcome] = []
        jobs = self._plan([t for t in tables if t not in waiting], moment, found)
        loads = [j.table for j in jobs if j.is_load] + [o.table for o in found if o.action == PREPARE]
        later += [t.pgt_id for t in loads]
        held |= {t.relid for t in loads} | {o.table.relid for o in found if o.error is not None}
        outcomes += [o for o in found if o.action != PREPARE]
        moving = [j for j in jobs if not j.is_load]
        self._compute(moving, moment)
        for job in moving:
            if job.is_load:  # a value sent it to FULL
                later.append(job.table.pgt_id)
                held.add(job.table.relid)
                continue
            outcome = self._finish(job, moment, "SCHEDULER")
            outcomes.append(outcome)
            if outcome.error is not None:
                held.add(job.table.relid)

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
