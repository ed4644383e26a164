"""A wave: stream tables of one database that are refreshed together, from one snapshot.

Read in one REPEATABLE READ transaction, compute on Spark in few jobs, apply each table in a transaction of its own. A
table that fails does not hold back the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pgtrickle.apply.commit import RefreshRecord, fence, write_history
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
from pgtrickle.model.catalog import StreamTable
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
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.loads import replace_rows, stage_load
from pgtrickle.refresh.observed import Begun, ObservedSources, wanted_windows
from pgtrickle.refresh.pending import Wanted, analyse_buffers, read_pending
from pgtrickle.refresh.stages import (
    AppliedRefresh,
    Computed,
    ComputedRefresh,
    FailedRefresh,
    NettedRefresh,
    PlannedRefresh,
    PlannedWave,
    ReadRefresh,
    timed,
    timed_together,
    without_read,
)

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

FEW_ROWS = 10_000  # changes whose rows are rather found by an index: to read a table for them is not proportional


P = ParamSpec("P")
Result = TypeVar("Result")
Read = ReadRefresh | Computed  # few changes of a mirror are computed as they come


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
        with translated(), self._snapshot():
            with self.engine.coming():
                moment = catalog.read_moment(self.reader)
                tables = self._tables(ids)
                if not may_go(tables):
                    return None
                wave = self._plan(tables, moment)
                computed = self._compute(wave.refreshes, moment, guarded=guarded)
            return [*wave.outcomes, *self._finish_all(computed, moment, initiated_by)]

    def _compute(
        self, refreshes: Sequence[PlannedRefresh], moment: catalog.ReadPoint, *, guarded: bool = True
    ) -> list[Computed]:
        """Reads, nets and arranges the changes of these tables; what AUTO cannot do from changes turns to FULL."""
        moving = [planned for planned in refreshes if planned.is_differential]
        with timed_together(moving, "read"):
            self._expect_few(refreshes)
            read: Sequence[Read]
            if guarded:
                read = [self._step(planned, "read", self._read, planned, moment.cut) for planned in moving]
            else:
                read = self._all(read_deltas, self.reader, moving, moment.cut, self.limits.max_delta_bytes)
        return self._computed(refreshes, read, moment, guarded=guarded)

    def _computed(
        self,
        refreshes: Sequence[PlannedRefresh],
        read: Sequence[Read],
        moment: catalog.ReadPoint,
        *,
        guarded: bool = True,
    ) -> list[Computed]:
        """What is to be written for each of `refreshes`, from what was read for those that change."""
        netted = net(self.engine, [each for each in read if isinstance(each, ReadRefresh)])
        arranged = self._arrange_all([each for each in netted if isinstance(each, NettedRefresh)], guarded=guarded)
        ended = [e for e in (*read, *netted, *arranged) if isinstance(e, ComputedRefresh | FailedRefresh)]
        found = {each.planned.table.pgt_id: each for each in ended}
        computed = [found.get(planned.table.pgt_id) or without_read(planned) for planned in refreshes]
        return [self._in_full(each, moment) if isinstance(each, FailedRefresh) else each for each in computed]

    def _expect_few(self, refreshes: Sequence[PlannedRefresh]) -> None:
        """For the rest of the snapshot, if nothing is loaded from it: pages are in memory, as most are that changes
        touch. The planner's usual idea, of a disk with a head, is that 1,500 lookups take longer than to read and hash
        100,000 rows, which takes six times as long.
        """
        rows = [planned.changes for planned in refreshes if planned.is_differential]
        if rows and max(rows) <= FEW_ROWS and not any(planned.is_load for planned in refreshes):
            cost = "least(current_setting('random_page_cost')::float8, 1.1)::text"
            self.reader.execute(f"SELECT set_config('random_page_cost', {cost}, true)")

    def _arrange_all(self, netted: Sequence[NettedRefresh], *, guarded: bool) -> Sequence[Computed]:
        with timed_together([each.planned for each in netted], "arrange"):
            if any(len(each.delta) > MOST_PLANNED_AHEAD for each in netted):
                plan_for_many(self.reader)
            if guarded:
                return [self._step(each.planned, "arrange", self._arrange, each) for each in netted]
            return self._all(arrange, self.reader, self.engine, netted)

    def _in_full(self, failed: FailedRefresh, moment: catalog.ReadPoint) -> Computed:
        """A row on which the query fails (no other kind of DefinitionError) may have come and gone: FULL sees only what
        is there now."""
        planned, error = failed.planned, failed.error
        is_value = isinstance(error, InexactValueError | TooManyRowsError) or type(error) is DefinitionError
        if not is_value or planned.table.refresh_mode != "AUTO":
            return failed
        if isinstance(error, TooManyRowsError):  # what it took until it gave up, and then FULL besides
            self._learn(planned, DIFFERENTIAL, moment, besides_ms=planned.table.last_full_ms or 0.0)
        timings = Timings({"plan": planned.timings.parts.get("plan", 0.0)})  # not what FULL takes
        decision = Decision(FULL, Reason.of(ReasonCode.DELTA_FAILED, error=error.message))
        return without_read(replace(planned, decision=decision, timings=timings))

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

    def _plan(self, tables: Sequence[StreamTable], moment: catalog.ReadPoint) -> PlannedWave:
        """What each table needs. Tables without work (unless `include_unchanged`) or with errors have outcomes."""
        begun = Begun(datetime.now(UTC), time.perf_counter())
        seen = self._observe(tables, moment)
        self.costs.read(self.reader, (t for t in tables if t.refresh_mode == "AUTO" and t.is_populated))
        found = [self._planned(table, seen, moment, begun) for table in tables]
        refreshes = [each for each in found if isinstance(each, PlannedRefresh)]
        if any(planned.table.runs_as_author for planned in refreshes):
            # Here, because no snapshot is exported from within a savepoint.
            place = hand_over(self.snapshot_of)
            refreshes = [replace(p, place=place) if p.table.runs_as_author else p for p in refreshes]
        return PlannedWave(tuple(refreshes), tuple(each for each in found if isinstance(each, Outcome)))

    def _observe(self, tables: Sequence[StreamTable], moment: catalog.ReadPoint) -> ObservedSources:
        """What the snapshot shows of the sources, in few round trips for all tables."""
        prints = self._prints(sorted({s.relid for t in tables for s in t.watched}))
        cuts = {t.pgt_id: since(t, moment.instance, moment.cut) for t in tables}
        wanted = {
            t.pgt_id: wanted_windows(t, Window(cut, moment.cut), prints, self.compiled(t))
            for t in tables
            if (cut := cuts[t.pgt_id]) is not None
        }
        counts, sizes = self._pending([w for windows in wanted.values() for w in windows.values()])
        pending = {i: {relid: counts[w] for relid, w in windows.items()} for i, windows in wanted.items()}
        return ObservedSources(prints, cuts, pending, sizes)

    def _planned(
        self, table: StreamTable, seen: ObservedSources, moment: catalog.ReadPoint, begun: Begun
    ) -> PlannedRefresh | Outcome:
        if not table.is_in_place:
            return Outcome(table, FULL, None, _moved(table))
        if table.lost_privilege is not None:
            return Outcome(table, FULL, None, lost_privilege(table))
        compiled = self.compiled(table)
        if compiled is None:
            return Outcome(table, PREPARE)
        pending = seen.pending.get(table.pgt_id, {})
        decision = decide(
            table,
            differentiable=compiled.template is not None,
            reload=reload_reason(table, moment.instance, moment.cut, moment.time_zone),
            fingerprints=seen.fingerprints,
            pending=pending,
            source_rows=seen.sizes,
            limits=self.limits,
            past=self.costs.past(table),
            now=moment.time,
        )
        compiled.texts.moved += sum(p.captured for p in pending.values())
        # Changes that do not matter to the table are behind it all the same: its frontier lets their buffer go.
        is_quiet = not table.refresh_requested and all(p.is_seen for p in pending.values())
        if decision.action == PREPARE or (decision.action == NO_DATA and is_quiet and not self.include_unchanged):
            return Outcome(table, decision.action, decision.reason)
        return PlannedRefresh(
            table,
            compiled,
            decision,
            seen.cuts[table.pgt_id],
            pending,
            {s.relid: seen.fingerprints.get(s.relid) for s in table.watched},
            begun.at,
            Timings({"plan": (time.perf_counter() - begun.clock) * 1000}),
            apart(compiled.settings, moment.session),
        )

    def _prints(self, relids: Sequence[int]) -> Mapping[int, str | None]:
        return fingerprints(self.reader, relids)

    def _pending(self, wanted: Sequence[Wanted]) -> tuple[dict[Wanted, Pending], dict[int, float]]:
        counts, sizes = read_pending(self.reader, wanted)
        analyse_buffers(self.writer, counts)
        return counts, sizes

    def _read(self, planned: PlannedRefresh, cut: Cut) -> Read:
        (read,) = read_deltas(self.reader, [planned], cut, self.limits.max_delta_bytes)
        return read

    def _arrange(self, netted: NettedRefresh) -> ComputedRefresh:
        (computed,) = arrange(self.reader, self.engine, [netted])
        return computed

    # -- apply
    # ------------------------------------------------------------------------------------------------------------

    def _finish_all(self, found: Sequence[Computed], moment: catalog.ReadPoint, initiated_by: str) -> list[Outcome]:
        """Deltas in one transaction: one commit for all. When one fails, each in its own, so that it fails alone."""
        small = [each for each in found if isinstance(each, ComputedRefresh) and not each.planned.is_load]
        outcomes: list[Outcome] = []
        if len(small) > 1:
            try:
                with translated(), self.writer.transaction():
                    outcomes = [each.outcome() for each in self._write(small, moment, initiated_by)]
            except PgtrickleError:
                outcomes = []
        # Loads last: they may be long, and they still read from the snapshot while they write.
        done = {outcome.table.pgt_id for outcome in outcomes}
        left = [each for each in found if each.planned.table.pgt_id not in done]
        left.sort(key=lambda each: each.planned.is_load)
        return outcomes + [self._finish(each, moment, initiated_by) for each in left]

    def _finish(self, computed: Computed, moment: catalog.ReadPoint, initiated_by: str) -> Outcome:
        if isinstance(computed, FailedRefresh):
            return computed.outcome()
        try:
            with translated(), self.writer.transaction():
                (written,) = self._write([computed], moment, initiated_by)
                if isinstance(written, FailedRefresh):
                    raise written.error  # what was staged goes with the transaction
        except PgtrickleError as error:
            return FailedRefresh(computed.planned, error).outcome()
        return written.outcome()

    def _write(
        self, refreshes: Sequence[ComputedRefresh], moment: catalog.ReadPoint, initiated_by: str
    ) -> list[AppliedRefresh | FailedRefresh]:
        """Inside a transaction: rows, frontiers and history. A table that somebody else has refreshed fails."""
        stages = self._stage_loads(refreshes)
        records = {c.planned.table.pgt_id: self._record(c.planned, moment, initiated_by) for c in refreshes}
        if any(computed.has_more_rows_than(MOST_PLANNED_AHEAD) for computed in refreshes):
            plan_for_many(self.writer)
        # Only now: a long load must not lock the catalog row while it is read.
        moved = fence(self.writer, list(records.values()))
        rows = self._apply_all([c for c in refreshes if c.planned.table.pgt_id in moved], stages)
        found: list[AppliedRefresh | FailedRefresh] = []
        for planned in (computed.planned for computed in refreshes):
            pgt_id = planned.table.pgt_id
            if pgt_id in moved:
                found.append(AppliedRefresh(planned, records[pgt_id], *rows[pgt_id]))
            else:
                fenced = FencedError(f"stream table {pgt_id} was refreshed or changed by somebody else first")
                found.append(FailedRefresh(planned, fenced))
        self._note([each for each in found if isinstance(each, AppliedRefresh)], moment)
        return found

    def _stage_loads(self, refreshes: Sequence[ComputedRefresh]) -> dict[int, str]:
        """The staging table of each table that is loaded."""
        stages: dict[int, str] = {}
        for planned in (computed.planned for computed in refreshes if computed.planned.is_load):
            with timed_together([planned], "stage"), applied(self.reader, planned.settings):
                stage = stage_load(self.reader, self.writer, self.engine, planned, self.bulk_bytes)
            stages[planned.table.pgt_id] = stage
        return stages

    def _note(self, refreshes: Sequence[AppliedRefresh], moment: catalog.ReadPoint) -> None:
        """What is kept of refreshes besides their rows: history, costs, how much has moved."""
        for applied_one in refreshes:
            applied_one.planned.compiled.texts.moved += applied_one.inserted + applied_one.deleted
        shown = [each for each in refreshes if not each.planned.is_silent]
        if shown:
            write_history(self.writer, [each.committed() for each in shown])
            # The transaction that holds the cut is there until we commit: netting out a buffer waits for it
            # (capture/compact.py).
            if self.reader is not self.writer:
                self.reader.execute("SELECT")
        for planned in (each.planned for each in refreshes):
            if planned.decision.action != NO_DATA:
                is_load = planned.decision.action not in (FULL, DIFFERENTIAL) or not planned.table.is_populated
                self._learn(planned, LOAD if is_load else planned.decision.action, moment)

    def _record(self, planned: PlannedRefresh, moment: catalog.ReadPoint, initiated_by: str) -> RefreshRecord:
        table = planned.table
        return RefreshRecord(
            table.pgt_id,
            table.epoch,
            {**(table.origins or {}), **Frontier({moment.instance.key: moment.cut}).to_json()},
            moment.time,
            planned.started_at,
            planned.decision.action,
            planned.decision.reason,
            "INITIAL" if not table.is_populated else "MANUAL" if table.refresh_requested else initiated_by,
            planned.changes,
            table.refresh_requested_at,
            planned.fingerprints,
            {"time_zone": moment.time_zone, "functions": table.functions},
        )

    def _learn(self, planned: PlannedRefresh, kind: str, moment: catalog.ReadPoint, *, besides_ms: float = 0.0) -> None:
        self.costs.learn(planned.table, kind, planned.changes, planned.timings.total_ms + besides_ms, moment.time)

    def _apply_all(self, refreshes: Sequence[ComputedRefresh], stages: Mapping[int, str]) -> dict[int, tuple[int, int]]:
        """Rows inserted and deleted, by table."""
        found: dict[int, tuple[int, int]] = {}
        for planned in (computed.planned for computed in refreshes):
            if (stage := stages.get(planned.table.pgt_id)) is not None:
                with timed(planned, "apply"), applied(self.writer, planned.settings):
                    found[planned.table.pgt_id] = replace_rows(self.writer, planned, stage)
        rest = [computed for computed in refreshes if computed.planned.table.pgt_id not in found]
        with timed_together([c.planned for c in rest if c.planned.is_differential], "apply"):
            return found | apply_deltas(self.writer, rest)

    def _step(
        self, planned: PlannedRefresh, part: str, step: Callable[P, Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result | FailedRefresh:
        """Runs one table's step, so that its failure leaves the snapshot usable for the others."""
        try:
            with timed_together([planned], part), translated(), self.reader.transaction():
                return step(*args, **kwargs)
        except PgtrickleError as error:
            return FailedRefresh(planned, error)

    def _all(self, step: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """The same step of all tables, without savepoints."""
        try:
            with translated():
                return step(*args, **kwargs)
        except PgtrickleError as error:
            raise _SpoiltError from error


def _moved(table: StreamTable) -> SourceChangedError:
    """Rows are written by name: what stands under the name of a table that was renamed is somebody else's."""
    return SourceChangedError(
        f"the table {table.full_name} was dropped, renamed or moved to another schema",
        hint=f"put it back and resume, or SELECT pgtrickle.repair_stream_table('{table.full_name}')",
    )
