"""A wave: stream tables of one database that are refreshed together, from one snapshot.

Read in one REPEATABLE READ transaction, compute on Spark in few jobs, apply each table in a transaction of its own. A
table that fails does not hold back the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.commit import CommittedRefresh, RefreshRecord, fence, write_history
from pgtrickle.capture.fingerprint import fingerprints
from pgtrickle.db import catalog
from pgtrickle.db.connect import MOST_PLANNED_AHEAD, begin, plan_for_many, translated
from pgtrickle.db.handover import hand_over
from pgtrickle.db.session import applied
from pgtrickle.define.compile import Compiled
from pgtrickle.define.privileges import lost_privilege
from pgtrickle.errors import (
    DefinitionError,
    FencedError,
    InexactValueError,
    PgtrickleError,
    SourceChangedError,
    TooManyRowsError,
)
from pgtrickle.model.catalog import Source, StreamTable
from pgtrickle.model.fingerprint import unchanged
from pgtrickle.model.flow import Cut, Frontier, Pending, Timings, Window
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.model.session import apart
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh.bulk_load import BULK_BYTES
from pgtrickle.refresh.cost_history import CostHistoryCache
from pgtrickle.refresh.cost_model import LOAD, Limits
from pgtrickle.refresh.decide import (
    DIFFERENTIAL,
    FULL,
    NO_DATA,
    PREPARE,
    Decision,
    decide,
    reload_reason,
    since,
)
from pgtrickle.refresh.deltas import apply_deltas, arrange, net, read_deltas
from pgtrickle.refresh.job import Outcome, TableRefresh, timed, timed_together
from pgtrickle.refresh.loads import replace_rows, stage_load
from pgtrickle.refresh.pending import Wanted, analyse_buffers, read_pending

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

FEW_ROWS = 10_000  # changes whose rows are rather found by an index: to read a table for them is not proportional


class _SpoiltError(Exception):
    """A statement failed without a savepoint: nothing more can be read at this snapshot."""


class WaveRefresher:
    """Refreshes stream tables of one database over two connections: one reads at a snapshot, one applies."""

    def __init__(
        self,
        reader: Connection,
        writer: Connection,
        engine: SparkEngine,
        compiled: Callable[[StreamTable], Compiled | None],
        limits: Limits,
        bulk_bytes: int = BULK_BYTES,
        costs: CostHistoryCache | None = None,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.engine = engine
        self.compiled = compiled
        self.limits = limits
        self.include_unchanged = False  # of a cycle all go when one does
        self.bulk_bytes = bulk_bytes
        self.costs = costs if costs is not None else CostHistoryCache()
        self.snapshot_of = reader  # the session whose snapshot authors' sessions take over

    def wave(self, ids: Sequence[int], *, initiated_by: str = "SCHEDULER") -> list[Outcome]:
        return self.wave_if(ids, lambda _tables: True, initiated_by) or []

    def wave_if(
        self, ids: Sequence[int], may_go: Callable[[Sequence[StreamTable]], bool], initiated_by: str = "SCHEDULER"
    ) -> list[Outcome] | None:
        """None: they may not go, as they are now.

        First without savepoints: a read that fails spoils the snapshot for all, and then they go with them.
        """
        try:
            return self._wave(ids, may_go, initiated_by, guarded=len(ids) == 1)
        except _SpoiltError:
            return self._wave(ids, may_go, initiated_by, guarded=True)

    def _wave(
        self,
        ids: Sequence[int],
        may_go: Callable[[Sequence[StreamTable]], bool],
        initiated_by: str,
        *,
        guarded: bool,
    ) -> list[Outcome] | None:
        outcomes: list[Outcome] = []
        with translated(), self._snapshot():
            with self.engine.coming():
                moment = catalog.read_moment(self.reader)
                tables = self._tables(ids)
                if not may_go(tables):
                    return None
                jobs = self._plan(tables, moment, outcomes)
                self._compute(jobs, moment, guarded=guarded)
            outcomes += self._finish_all(jobs, moment, initiated_by)
        return outcomes

    def _compute(self, jobs: Sequence[TableRefresh], moment: catalog.ReadPoint, *, guarded: bool = True) -> None:
        """Reads, runs and arranges the changes of these tables; what AUTO cannot do from changes turns to FULL."""
        moving = [job for job in jobs if job.decision.action == DIFFERENTIAL]
        with timed_together(moving, "read"):
            self._expect_few(jobs)
            if guarded:
                for job in jobs:
                    self._step(job, "read", self._read, moment.cut)
            else:
                self._all(read_deltas, self.reader, jobs, moment.cut, self.limits.max_delta_bytes)
        net(self.engine, jobs)
        self._arrange_all(jobs, moment, guarded=guarded)

    def _expect_few(self, jobs: Sequence[TableRefresh]) -> None:
        """For the rest of the snapshot, if nothing is loaded from it: pages are in memory, as most are that changes
        touch. The planner's usual idea, of a disk with a head, is that 1,500 lookups take longer than to read and hash
        100,000 rows, which takes six times as long.
        """
        rows = [sum(p.rows for p in job.pending.values()) for job in jobs if job.decision.action == DIFFERENTIAL]
        if rows and max(rows) <= FEW_ROWS and not any(job.is_load for job in jobs):
            cost = "least(current_setting('random_page_cost')::float8, 1.1)::text"
            self.reader.execute(f"SELECT set_config('random_page_cost', {cost}, true)")

    def _arrange_all(self, jobs: Sequence[TableRefresh], moment: catalog.ReadPoint, *, guarded: bool = True) -> None:
        arranged = [job for job in jobs if job.delta is not None and job.error is None]
        with timed_together(arranged, "arrange"):
            if any(job.delta is not None and len(job.delta) > MOST_PLANNED_AHEAD for job in jobs):
                plan_for_many(self.reader)
            if guarded:
                for job in arranged:
                    self._step(job, "arrange", self._arrange)
            else:
                self._all(arrange, self.reader, self.engine, arranged)
        for job in jobs:
            # A row on which the query fails (no other kind of DefinitionError) may have come and gone: FULL sees
            # only what is there now.
            is_value = isinstance(job.error, InexactValueError | TooManyRowsError) or type(job.error) is DefinitionError
            if job.error is not None and is_value and job.table.refresh_mode == "AUTO":
                if isinstance(job.error, TooManyRowsError):  # what it took until it gave up, and then FULL besides
                    self._learn(job, DIFFERENTIAL, moment, besides_ms=job.table.last_full_ms or 0.0)
                failed = Reason.of(ReasonCode.DELTA_FAILED, error=job.error.message)
                job.decision, job.error = Decision(FULL, failed), None
                job.timings = Timings({"plan": job.timings.parts.get("plan", 0.0)})  # not what FULL takes

    # -- read
    # -------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        begin(self.reader, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
            if not self.reader.closed:
                self.reader.commit()  # rollback() would forget what is prepared, which then is planned anew each time
        finally:
            if not self.reader.closed:
                self.reader.rollback()

    def _tables(self, ids: Sequence[int]) -> list[StreamTable]:
        return catalog.load_stream_tables(self.reader, ids)

    def _plan(
        self, tables: Sequence[StreamTable], moment: catalog.ReadPoint, outcomes: list[Outcome]
    ) -> list[TableRefresh]:
        """What each table needs. Tables without work (unless `include_unchanged`) or with errors are in `outcomes`."""
        started, begun = datetime.now(UTC), time.perf_counter()
        prints = self._prints(sorted({s.relid for t in tables for s in t.watched}))
        cuts = {t.pgt_id: since(t, moment.instance, moment.cut) for t in tables}
        windows = {t.pgt_id: Window(cut, moment.cut) for t in tables if (cut := cuts[t.pgt_id]) is not None}
        # Of a source whose structure changed not even the buffer may be there any more; `decide` sees to that.
        wanted = {
            (t.pgt_id, s.relid): (s.relid, windows[t.pgt_id], _columns(t, s, self.compiled(t)))
            for t in tables
            if t.pgt_id in windows
            for s in t.captured
            if unchanged(t.fingerprints.get(s.relid), prints.get(s.relid), ())
        }
        counts, sizes = self._pending(list(wanted.values()))
        self.costs.read(self.reader, (t for t in tables if t.refresh_mode == "AUTO" and t.is_populated))
        jobs = []
        for table in tables:
            if not table.is_in_place:
                outcomes.append(Outcome(table, FULL, None, _moved(table)))
                continue
            if table.lost_privilege is not None:
                outcomes.append(Outcome(table, FULL, None, lost_privilege(table)))
                continue
            compiled = self.compiled(table)
            if compiled is None:
                outcomes.append(Outcome(table, PREPARE))
                continue
            pending = {relid: counts[w] for (pgt_id, relid), w in wanted.items() if pgt_id == table.pgt_id}
            decision = decide(
                table,
                differentiable=compiled.template is not None,
                reload=reload_reason(table, moment.instance, moment.cut, moment.time_zone),
                fingerprints=prints,
                pending=pending,
                source_rows=sizes,
                limits=self.limits,
                past=self.costs.past(table),
                now=moment.time,
            )
            compiled.texts.moved += sum(p.captured for p in pending.values())
            # Changes that do not matter to the table are behind it all the same: its frontier lets their buffer go.
            is_quiet = not table.refresh_requested and all(p.is_seen for p in pending.values())
            if decision.action == PREPARE or (decision.action == NO_DATA and is_quiet and not self.include_unchanged):
                outcomes.append(Outcome(table, decision.action, decision.reason))
                continue
            timings = Timings()
            timings.add("plan", (time.perf_counter() - begun) * 1000)
            own = {s.relid: prints.get(s.relid) for s in table.watched}
            job = TableRefresh(table, compiled, decision, cuts[table.pgt_id], pending, own, started, timings)
            job.settings = apart(compiled.settings, moment.session)
            jobs.append(job)
        authors = [job for job in jobs if job.table.runs_as_author]
        if authors:  # here, because no snapshot is exported from within a savepoint
            place = hand_over(self.snapshot_of)
            for job in authors:
                job.place = place
        return jobs

    def _prints(self, relids: Sequence[int]) -> Mapping[int, str | None]:
        return fingerprints(self.reader, relids)

    def _pending(self, wanted: Sequence[Wanted]) -> tuple[dict[Wanted, Pending], dict[int, float]]:
        counts, sizes = read_pending(self.reader, wanted)
        analyse_buffers(self.writer, counts)
        return counts, sizes

    def _read(self, job: TableRefresh, cut: Cut) -> None:
        read_deltas(self.reader, [job], cut, self.limits.max_delta_bytes)

    def _arrange(self, job: TableRefresh) -> None:
        arrange(self.reader, self.engine, [job])

    # -- apply
    # ------------------------------------------------------------------------------------------------------------

    def _finish_all(self, jobs: Sequence[TableRefresh], moment: catalog.ReadPoint, initiated_by: str) -> list[Outcome]:
        """Deltas in one transaction: one commit for all. When one fails, each in its own, so that it fails alone."""
        small = [job for job in jobs if not job.is_load and job.error is None]
        outcomes: list[Outcome] = []
        if len(small) > 1:
            try:
                with translated(), self.writer.transaction():
                    outcomes = self._write(small, moment, initiated_by)
            except PgtrickleError:
                outcomes = []
        # Loads last: they may be long, and they still read from the snapshot while they write.
        left = [job for job in jobs if not outcomes or job.is_load or job.error is not None]
        return outcomes + [self._finish(job, moment, initiated_by) for job in sorted(left, key=lambda j: j.is_load)]

    def _finish(self, job: TableRefresh, moment: catalog.ReadPoint, initiated_by: str) -> Outcome:
        try:
            if job.error is not None:
                raise job.error
            with translated(), self.writer.transaction():
                (outcome,) = self._write([job], moment, initiated_by)
                if outcome.error is not None:
                    raise outcome.error  # what was staged goes with the transaction
        except PgtrickleError as error:
            return Outcome(job.table, job.decision.action, job.decision.reason, error)
        return outcome

    def _write(self, jobs: Sequence[TableRefresh], moment: catalog.ReadPoint, initiated_by: str) -> list[Outcome]:
        """Inside a transaction: rows, frontiers and history."""
        stages: dict[int, str] = {}
        for job in jobs:
            if job.is_load:
                with timed_together([job], "stage"), applied(self.reader, job.settings):
                    stages[job.table.pgt_id] = stage_load(self.reader, self.writer, self.engine, job, self.bulk_bytes)
        records = [self._record(job, moment, initiated_by) for job in jobs]
        if any(job.is_load or (job.arrays and len(job.arrays[0]) > MOST_PLANNED_AHEAD) for job in jobs):
            plan_for_many(self.writer)
        # Only now: a long load must not lock the catalog row while it is read.
        moved = fence(self.writer, records)
        rows = self._apply_all([job for job in jobs if job.table.pgt_id in moved], stages)
        outcomes: list[Outcome] = []
        written: list[CommittedRefresh] = []
        for job, record in zip(jobs, records, strict=True):
            if record.pgt_id not in moved:
                fenced = FencedError(f"stream table {record.pgt_id} was refreshed or changed by somebody else first")
                outcomes.append(Outcome(job.table, record.action, record.reason, fenced))
                continue
            inserted, deleted = rows[record.pgt_id]
            job.compiled.texts.moved += inserted + deleted
            timings = job.timings.to_json()
            if not job.is_silent:
                written.append(CommittedRefresh(record, inserted, deleted, timings))
            outcomes.append(Outcome(job.table, record.action, record.reason, None, inserted, deleted, timings))
        if written:
            write_history(self.writer, written)
            # The transaction that holds the cut is there until we commit: netting out a buffer waits for it
            # (capture/compact.py).
            if self.reader is not self.writer:
                self.reader.execute("SELECT")
        for job in jobs:
            if job.table.pgt_id in moved and job.decision.action != NO_DATA:
                is_load = job.decision.action not in (FULL, DIFFERENTIAL) or not job.table.is_populated
                self._learn(job, LOAD if is_load else job.decision.action, moment)
        return outcomes

    def _record(self, job: TableRefresh, moment: catalog.ReadPoint, initiated_by: str) -> RefreshRecord:
        return RefreshRecord(
            job.table.pgt_id,
            job.table.epoch,
            {**(job.table.origins or {}), **Frontier({moment.instance.key: moment.cut}).to_json()},
            moment.time,
            job.started_at,
            job.decision.action,
            job.decision.reason,
            "INITIAL" if not job.table.is_populated else "MANUAL" if job.table.refresh_requested else initiated_by,
            sum(p.rows for p in job.pending.values()),
            job.table.refresh_requested_at,
            job.fingerprints,
            {"time_zone": moment.time_zone, "functions": job.table.functions},
        )

    def _learn(self, job: TableRefresh, kind: str, moment: catalog.ReadPoint, *, besides_ms: float = 0.0) -> None:
        rows = sum(p.rows for p in job.pending.values())
        self.costs.learn(job.table, kind, rows, job.timings.total_ms + besides_ms, moment.time)

    def _apply_all(self, jobs: Sequence[TableRefresh], stages: Mapping[int, str]) -> dict[int, tuple[int, int]]:
        """Rows inserted and deleted, by table."""
        found: dict[int, tuple[int, int]] = {}
        for job in jobs:
            if (stage := stages.get(job.table.pgt_id)) is not None:
                with timed(job, "apply"), applied(self.writer, job.settings):
                    found[job.table.pgt_id] = replace_rows(self.writer, job, stage)
        rest = [job for job in jobs if job.table.pgt_id not in found]
        with timed_together([job for job in rest if job.decision.action == DIFFERENTIAL], "apply"):
            return found | apply_deltas(self.writer, rest)

    def _step(self, job: TableRefresh, part: str, step: Callable[..., None], *args: Any) -> None:
        """Runs one table's step, so that its failure leaves the snapshot usable for the others."""
        if job.error is not None:
            return
        try:
            with timed_together([job], part), translated(), self.reader.transaction():
                step(job, *args)
        except PgtrickleError as error:
            job.error = error

    def _all(self, step: Callable[..., None], *args: Any) -> None:
        """The same step of all tables, without savepoints."""
        try:
            with translated():
                step(*args)
        except PgtrickleError as error:
            raise _SpoiltError from error


def _moved(table: StreamTable) -> SourceChangedError:
    """Rows are written by name: what stands under the name of a table that was renamed is somebody else's."""
    return SourceChangedError(
        f"the table {table.full_name} was dropped, renamed or moved to another schema",
        hint=f"put it back and resume, or SELECT pgtrickle.repair_stream_table('{table.full_name}')",
    )


def _columns(table: StreamTable, source: Source, compiled: Compiled | None) -> frozenset[int] | None:
    """The columns whose changes matter; None where all do, because the table is recomputed."""
    if compiled is None or compiled.template is None or table.effective_mode == "FULL":
        return None
    return source.columns
