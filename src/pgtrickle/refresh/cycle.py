"""Cycles of stream tables: refreshed together, to the least fixpoint of their definitions (ADR 18).

If rows were only inserted into the sources, the stored rows are a subset of the new fixpoint, and the steps start with
them. If rows were deleted, a stored row may be derived only from other rows of the cycle: then the fixpoint is computed
from empty tables, and the difference is written. All members are committed in one transaction, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pgtrickle.apply.target import reshape
from pgtrickle.db import catalog
from pgtrickle.db.copy import read_batches
from pgtrickle.db.session import applied
from pgtrickle.errors import DefinitionError, PgtrickleError, TransientError
from pgtrickle.model.catalog import Source, StreamTable
from pgtrickle.model.flow import Cut, Window, weight_of
from pgtrickle.model.identifiers import qualified
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.model.texts import row_text
from pgtrickle.pipeline.delta_layout import ROWS
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.engine import frames
from pgtrickle.pipeline.plan.nodes import scans
from pgtrickle.pipeline.templates.fixpoint import CycleMember, FixpointProgress, FixpointStep, define
from pgtrickle.pipeline.templates.stages import LoadStage
from pgtrickle.pipeline.templates.template import BagTemplate
from pgtrickle.refresh.chain import ChainRefresher
from pgtrickle.refresh.decide import DIFFERENTIAL, FULL, NO_DATA, Decision
from pgtrickle.refresh.deltas import SMALL_ROWS, net
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.pending import FEWEST_ANALYSED
from pgtrickle.refresh.stages import ComputedRefresh, FailedRefresh, PlannedRefresh, ReadRefresh, timed, without_read

# New rows after the first round. A union of a cycle with itself doubles in each round, and would fill any disk before
# the limit of rounds is reached.
MAX_CYCLE_ROWS = 10_000_000


class CycleRefresher(ChainRefresher):
    """Refreshes cycles, chains and waves."""

    def cycle(self, tables: Sequence[StreamTable], most_rounds: int) -> list[Outcome]:
        """An outcome for each table; after an error all have the same one, and nothing was written."""
        try:
            with self._in_one_transaction() as snapshot:
                if snapshot is None:
                    raise TransientError("too many transactions started after the snapshot of a cycle")
                inner, moment = snapshot
                return inner.together([t.pgt_id for t in tables], moment, most_rounds)
        except PgtrickleError as error:
            return [Outcome(t, FULL, None, error) for t in tables]

    def together(self, ids: Sequence[int], moment: catalog.ReadPoint, most_rounds: int) -> list[Outcome]:
        """Refreshes all members inside one transaction. Raises an error if it must not be committed."""
        self.include_unchanged = True
        wave = self._plan(self._tables(ids), moment)
        for outcome in wave.outcomes:
            if outcome.error is not None:
                raise outcome.error
        refreshes = wave.refreshes
        if wave.outcomes or len(refreshes) < len(ids):  # a member has to be prepared first, or was dropped
            return list(wave.outcomes)
        if all(planned.decision.action == NO_DATA for planned in refreshes):
            if all(map(_is_quiet, refreshes)):
                return [Outcome(planned.table, NO_DATA) for planned in refreshes]
            return self._written([without_read(planned) for planned in refreshes], moment)
        reason = self._reason_to_compute_from_empty(refreshes, moment)
        if reason is None:
            rounds, outcomes = self._add(refreshes, moment, most_rounds)
        else:
            refreshes = tuple(p if p.is_load else replace(p, decision=Decision(FULL, reason)) for p in refreshes)
            rounds, outcomes = self._compute_from_empty(refreshes, moment, most_rounds)
        return [replace(outcome, rounds=rounds) for outcome in outcomes]

    def _written(self, refreshes: Sequence[ComputedRefresh], moment: catalog.ReadPoint) -> list[Outcome]:
        results = self._write(refreshes, moment, "SCHEDULER")
        for each in results:
            if isinstance(each, FailedRefresh):
                raise each.error
        return [each.outcome() for each in results]

    def _reason_to_compute_from_empty(
        self, refreshes: Sequence[PlannedRefresh], moment: catalog.ReadPoint
    ) -> Reason | None:
        """Why the fixpoint has to be computed from empty tables; None: the steps start with the stored rows."""
        for planned in refreshes:
            name, why = planned.table.full_name, planned.decision.reason
            if planned.is_load:
                assert why is not None
                return Reason.of(ReasonCode.CYCLE_MEMBER_LOADED, table=name, why=why)
            if planned.table.refresh_mode == "FULL":
                return Reason.of(ReasonCode.CYCLE_MEMBER_FULL, table=name)
        if len({planned.since for planned in refreshes}) > 1:
            return Reason.of(ReasonCode.CYCLE_INSTANTS)
        members = {planned.table.relid for planned in refreshes}
        changed = [(p, s) for p in refreshes for s in p.table.captured if p.pending[s.relid].rows]
        if any(source.relid in members for _, source in changed):
            return Reason.of(ReasonCode.CYCLE_WRITTEN)
        lost_rows = [_has_lost_rows(source, planned.window(moment.cut)) for planned, source in changed]
        row = self.reader.execute(f"SELECT {' OR '.join(lost_rows)}").fetchone() if lost_rows else None
        return Reason.of(ReasonCode.CYCLE_ROWS_DELETED) if row is not None and row[0] else None

    def _compute_from_empty(
        self, refreshes: Sequence[PlannedRefresh], moment: catalog.ReadPoint, most_rounds: int
    ) -> tuple[int, list[Outcome]]:
        """Computes the fixpoint from empty tables and writes the difference."""
        for planned in refreshes:
            reshape(self.writer, planned.compiled.target)
        rounds, members = self._fixpoint(refreshes, moment, most_rounds, from_empty=True)
        outcomes: list[Outcome] = []
        for planned, member in zip(refreshes, members, strict=True):
            stages = replace(planned.compiled.stages, load=LoadStage(member.all_new_rows()))
            compiled = replace(planned.compiled, stages=stages)
            outcomes += self._written([without_read(replace(planned, compiled=compiled))], moment)
        self._drop(members)
        return rounds, outcomes

    def _add(
        self, refreshes: Sequence[PlannedRefresh], moment: catalog.ReadPoint, most_rounds: int
    ) -> tuple[int, list[Outcome]]:
        """Computes the new rows from the stored rows and the changes."""
        rounds, members = self._fixpoint(refreshes, moment, most_rounds, from_empty=False)
        read = [self._read_new_rows(planned, member) for planned, member in zip(refreshes, members, strict=True)]
        self._drop(members)
        computed: list[ComputedRefresh] = []
        for each in net(self.engine, read):
            if isinstance(each, FailedRefresh):
                raise each.error
            computed.append(self._arrange(each))
        return rounds, self._written(computed, moment)

    def _read_new_rows(self, planned: PlannedRefresh, member: CycleMember) -> ReadRefresh:
        """The new rows of a member, as its delta."""
        planned = replace(planned, decision=Decision(DIFFERENTIAL, planned.decision.reason))
        statement = f"SELECT 1, f.r FROM ({member.all_new_rows()}) AS f(r)"
        rows = self.reader.execute(f"{statement} LIMIT {SMALL_ROWS + 1}").fetchall()
        if len(rows) <= SMALL_ROWS:
            return ReadRefresh(planned, frames.DeltaRows(ROWS, rows))
        batches = list(read_batches(self.reader, statement, frames.text_types(ROWS)))
        return ReadRefresh(planned, frames.from_batches(batches, ROWS))

    def _fixpoint(
        self, refreshes: Sequence[PlannedRefresh], moment: catalog.ReadPoint, most_rounds: int, *, from_empty: bool
    ) -> tuple[int, Sequence[CycleMember]]:
        """Runs rounds of one step per definition, until a round adds no row. The working tables contain new rows."""
        for planned in refreshes:
            self._require_names(planned)
        members = _definitions(refreshes)
        windows = {p.table.pgt_id: {} if from_empty else _windows(p, moment.cut) for p in refreshes}
        for member in members:
            for sql in member.prepare(from_empty=from_empty):
                self.writer.execute(sql)
        progress = FixpointProgress(tuple(members), from_empty)
        for number in range(1, most_rounds + 1):
            for planned, member in zip(refreshes, members, strict=True):
                step = progress.next_step(member, windows[planned.table.pgt_id])
                progress = progress.after(step, self._execute(planned, step))
            if progress.is_ended:
                return number, members
            later = progress.rows_after_first_round
            if later > MAX_CYCLE_ROWS:
                raise _endless(refreshes, f"{later} new rows in {number} rounds", "")
        raise _endless(
            refreshes, f"there are still new rows after {most_rounds} rounds", ", or raise max_fixpoint_iterations"
        )

    def _execute(self, planned: PlannedRefresh, step: FixpointStep) -> int:
        """Returns the number of new rows."""
        if step.sql is None:
            return 0
        with timed(planned, "fixpoint"), applied(self.writer, planned.settings):
            rows = self.writer.execute(step.sql).rowcount
            if rows >= FEWEST_ANALYSED:
                self.writer.execute(f"ANALYZE {step.member.new_rows}")
        return rows

    def _drop(self, definitions: Sequence[CycleMember]) -> None:
        for definition in definitions:
            for sql in definition.drop():
                self.writer.execute(sql)


def _is_quiet(planned: PlannedRefresh) -> bool:
    return not planned.table.refresh_requested and all(p.is_seen for p in planned.pending.values())


def _windows(planned: PlannedRefresh, cut: Cut) -> dict[int, ChangedSource]:
    window = planned.window(cut)
    return {relid: ChangedSource(relid, window, p.rows) for relid, p in planned.pending.items() if p.rows}


def _has_lost_rows(source: Source, window: Window) -> str:
    images = ChangedSource(source.relid, window, 0).images
    columns = row_text([f"c.c{a}" for a in sorted(source.captured_columns)])
    return f"EXISTS (SELECT FROM {images} GROUP BY {columns} HAVING sum({weight_of('c')}) < 0)"


def _definitions(refreshes: Sequence[PlannedRefresh]) -> list[CycleMember]:
    members = {planned.table.relid: planned.table.pgt_id for planned in refreshes}
    plans = []
    for planned in refreshes:
        assert isinstance(planned.template, BagTemplate)
        plans.append(planned.template.plan)
    relations = {s.relation.relid: s.relation for plan in plans for s in scans(plan) if s.relation.relid in members}
    return [
        define(
            t.pgt_id, t.relid, qualified(t.schema, t.name), t.columns, relations=relations, plan=plan, members=members
        )
        for t, plan in zip((planned.table for planned in refreshes), plans, strict=True)
    ]


def _endless(refreshes: Sequence[PlannedRefresh], what: str, further: str) -> DefinitionError:
    names = ", ".join(planned.table.full_name for planned in refreshes)
    return DefinitionError(
        f"the cycle of {names} does not terminate: {what}",
        hint=f"use UNION or DISTINCT if a row can be derived repeatedly{further}; then resume_stream_table",
    )
