"""Stream tables that read one another in a circle: refreshed together, to the least fixpoint of their definitions.

Where rows have only come to the sources, the stored rows are below the new fixpoint and are what the steps begin with.
Where rows have gone, a stored row may stand for no other reason than that others of the cycle still do: then all is
computed from nothing, and the difference is written. All members are committed together, at one instant, or none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pgtrickle.apply.target import reshape
from pgtrickle.db import catalog
from pgtrickle.db.copy import read_batches
from pgtrickle.db.session import applied
from pgtrickle.errors import DefinitionError, PgtrickleError, TransientError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.flow import Window
from pgtrickle.model.identifiers import qualified
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.model.texts import row_text
from pgtrickle.pipeline.delta_layout import ROWS
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.engine import frames
from pgtrickle.pipeline.plan.nodes import scans
from pgtrickle.pipeline.templates.fixpoint import CycleMember, define
from pgtrickle.pipeline.templates.template import BagTemplate
from pgtrickle.refresh.chain import ChainRefresher
from pgtrickle.refresh.decide import DIFFERENTIAL, FULL, NO_DATA, Decision
from pgtrickle.refresh.deltas import SMALL_ROWS, net
from pgtrickle.refresh.job import Outcome, TableRefresh, timed
from pgtrickle.refresh.pending import FEWEST_ANALYSED

# New rows after the first round. A union of a cycle with itself doubles in each one, and would fill any disk before a
# limit of rounds ends it.
MAX_CYCLE_ROWS = 10_000_000


class CycleRefresher(ChainRefresher):
    """Refreshes cycles besides all else."""

    def cycle(self, tables: Sequence[StreamTable], most_rounds: int) -> list[Outcome]:
        """An outcome for each; with an error all of them have it, and nothing was written."""
        try:
            with self._at_one_instant() as found:
                if found is None:
                    raise TransientError("too many transactions began beside the snapshot of a cycle")
                inner, moment = found
                return inner.together([t.pgt_id for t in tables], moment, most_rounds)
        except PgtrickleError as error:
            return [Outcome(t, FULL, None, error) for t in tables]

    def together(self, ids: Sequence[int], moment: catalog.ReadPoint, most_rounds: int) -> list[Outcome]:
        """Inside the transaction that all of them are committed by. Raises when it must not be."""
        others: list[Outcome] = []
        self.include_unchanged = True
        jobs = self._plan(self._tables(ids), moment, others)
        for outcome in others:
            if outcome.error is not None:
                raise outcome.error
        if others or len(jobs) < len(ids):  # to be prepared first, or just dropped
            return others
        if all(j.decision.action == NO_DATA for j in jobs):
            if all(not j.table.refresh_requested and all(p.is_seen for p in j.pending.values()) for j in jobs):
                return [Outcome(j.table, NO_DATA) for j in jobs]
            return self._written(jobs, moment)
        reason = self._anew(jobs, moment)
        if reason is None:
            rounds = self._add(jobs, moment, most_rounds)
            outcomes = self._written(jobs, moment)
        else:
            for job in jobs:
                if not job.is_load:
                    job.decision = Decision(FULL, reason)
                reshape(self.writer, job.compiled.target)
            rounds, definitions = self._fixpoint(jobs, moment, most_rounds, anew=True)
            for job, definition in zip(jobs, definitions, strict=True):
                job.compiled = replace(job.compiled, load_sql=definition.found())
            outcomes = [o for job in jobs for o in self._written([job], moment)]
            self._drop(definitions)
        return [replace(o, rounds=rounds) for o in outcomes]

    def _written(self, jobs: Sequence[TableRefresh], moment: catalog.ReadPoint) -> list[Outcome]:
        outcomes = self._write(jobs, moment, "SCHEDULER")
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return outcomes

    def _anew(self, jobs: Sequence[TableRefresh], moment: catalog.ReadPoint) -> Reason | None:
        """Why the stored rows cannot be what the steps begin with."""
        for job in jobs:
            if job.is_load:
                assert job.decision.reason is not None
                return Reason.of(ReasonCode.CYCLE_MEMBER_LOADED, table=job.table.full_name, why=job.decision.reason)
            if job.table.refresh_mode == "FULL":
                return Reason.of(ReasonCode.CYCLE_MEMBER_FULL, table=job.table.full_name)
        if len({job.since for job in jobs}) > 1:
            return Reason.of(ReasonCode.CYCLE_INSTANTS)
        members = {job.table.relid for job in jobs}
        gone = []
        for job in jobs:
            for source in job.table.captured:
                if not job.pending[source.relid].rows:
                    continue
                if source.relid in members:
                    return Reason.of(ReasonCode.CYCLE_WRITTEN)
                assert job.since is not None
                images = ChangedSource(source.relid, Window(job.since, moment.cut), 0).images
                columns = row_text([f"c.c{a}" for a in sorted(source.columns)])
                signed = "sum(CASE c.action WHEN 'I' THEN 1 ELSE -1 END)"
                gone.append(f"EXISTS (SELECT FROM {images} GROUP BY {columns} HAVING {signed} < 0)")
        row = self.reader.execute(f"SELECT {' OR '.join(gone)}").fetchone() if gone else None
        return Reason.of(ReasonCode.CYCLE_ROWS_DELETED) if row is not None and row[0] else None

    def _add(self, jobs: Sequence[TableRefresh], moment: catalog.ReadPoint, most_rounds: int) -> int:
        """What the changes lead to, from the stored rows: netted and identified by one Spark job for all."""
        rounds, definitions = self._fixpoint(jobs, moment, most_rounds, anew=False)
        for job, definition in zip(jobs, definitions, strict=True):
            job.decision = Decision(DIFFERENTIAL, job.decision.reason)
            statement = f"SELECT 1, f.r FROM ({definition.found()}) AS f(r)"
            rows = self.reader.execute(f"{statement} LIMIT {SMALL_ROWS + 1}").fetchall()
            job.leaf = frames.DeltaRows(ROWS, rows)
            if len(rows) > SMALL_ROWS:
                batches = list(read_batches(self.reader, statement, frames.text_types(ROWS)))
                job.leaf = frames.from_batches(batches, ROWS)
        self._drop(definitions)
        net(self.engine, jobs)
        for job in jobs:
            if job.error is not None:
                raise job.error
            self._arrange(job)
        return rounds

    def _fixpoint(
        self, jobs: Sequence[TableRefresh], moment: catalog.ReadPoint, most_rounds: int, *, anew: bool
    ) -> tuple[int, list[CycleMember]]:
        """Rounds of one step for each definition, until one brings nothing. The working tables have what came."""
        definitions = _definitions(jobs)
        came: dict[int, list[tuple[int, int]]] = {d.relid: [] for d in definitions}  # step, rows
        last: dict[int, int] = {}
        for definition in definitions:
            for sql in definition.prepare(anew=anew):
                self.writer.execute(sql)
        step = 0
        for number in range(1, most_rounds + 1):
            for job, definition in zip(jobs, definitions, strict=True):
                step += 1
                since = last.get(definition.relid)
                changed: dict[int, ChangedSource] = {}
                if since is None and not anew and job.since is not None:
                    window = Window(job.since, moment.cut)
                    read = {r: p for r, p in job.pending.items() if p.rows and r in definition.reads}
                    changed = {r: ChangedSource(r, window, p.rows) for r, p in read.items()}
                for other in definitions:
                    rows = sum(n for at, n in came[other.relid] if at >= (since or 0))
                    if rows and other.relid in definition.reads:
                        changed[other.relid] = other.since(since or 0, rows)
                last[definition.relid] = step
                if since is None and anew:
                    sql = definition.whole(step)
                elif changed:
                    sql = definition.further(step, changed)
                else:
                    continue
                with timed(job, "fixpoint"), applied(self.writer, job.settings):
                    rows = self.writer.execute(sql).rowcount
                    if rows >= FEWEST_ANALYSED:
                        self.writer.execute(f"ANALYZE {definition.came}")
                if rows:
                    came[definition.relid].append((step, rows))
            begun = step - len(definitions)
            if not any(at > begun for steps in came.values() for at, _ in steps):
                return number, definitions
            later = sum(n for steps in came.values() for at, n in steps if at > len(definitions))
            if later > MAX_CYCLE_ROWS:
                raise _endless(jobs, f"{later} new rows came in {number} rounds", "")
        raise _endless(jobs, f"rows still come after {most_rounds} rounds", ", or raise max_fixpoint_iterations")

    def _drop(self, definitions: Sequence[CycleMember]) -> None:
        for definition in definitions:
            for sql in definition.drop():
                self.writer.execute(sql)


def _definitions(jobs: Sequence[TableRefresh]) -> list[CycleMember]:
    members = {job.table.relid: job.table.pgt_id for job in jobs}
    plans = []
    for job in jobs:
        assert isinstance(job.template, BagTemplate)
        plans.append(job.template.plan)
    relations = {s.relation.relid: s.relation for plan in plans for s in scans(plan) if s.relation.relid in members}
    return [
        define(
            t.pgt_id, t.relid, qualified(t.schema, t.name), t.columns, relations=relations, plan=plan, members=members
        )
        for t, plan in zip((job.table for job in jobs), plans, strict=True)
    ]


def _endless(jobs: Sequence[TableRefresh], what: str, further: str) -> DefinitionError:
    names = ", ".join(job.table.full_name for job in jobs)
    return DefinitionError(
        f"the cycle of {names} does not come to an end: {what}",
        hint=f"use UNION or DISTINCT where the same row may come again{further}; then resume_stream_table",
    )
