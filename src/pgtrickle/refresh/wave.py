"""A wave: stream tables of one database that are refreshed together, from one snapshot.

It reads in one REPEATABLE READ transaction, nets large deltas on Spark in few jobs, and applies in one transaction, or
in one per table. A table that fails does not affect the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pgtrickle.apply.commit import RefreshRecord, fence, write_history
from pgtrickle.apply.target import is_empty
from pgtrickle.capture.fingerprint import fingerprints
from pgtrickle.db import catalog
from pgtrickle.db.connect import MOST_PLANNED_AHEAD, begin, plan_for_many, translated
from pgtrickle.db.handover import hand_over
from pgtrickle.db.names import HeldNames, hold_names, hold_storage
from pgtrickle.db.session import applied
from pgtrickle.define.compile import Compiled
from pgtrickle.define.privileges import lost_privilege
from pgtrickle.errors import (
    FencedError,
    PgtrickleError,
    TooFewKeptError,
    TooManyRowsError,
    TransientError,
)
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.flow import Cut, Pending, Window
from pgtrickle.model.reasons import ReasonCode
from pgtrickle.model.session import apart, without_formats
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh.bulk_load import BULK_BYTES
from pgtrickle.refresh.cost_history import CostHistoryCache
from pgtrickle.refresh.cost_model import AUTO, LOAD, SPARK, CostHistory, Limits, Sample
from pgtrickle.refresh.decide import (
    DIFFERENTIAL,
    FULL,
    NO_DATA,
    PREPARE,
    REINITIALIZE,
    decide,
    reload_reason,
    since,
)
from pgtrickle.refresh.deltas import apply_deltas, arrange, net, read_deltas
from pgtrickle.refresh.engine_choice import IN_CHAIN, ON_SPARK, PUSHED_DOWN, EngineChoice, EngineInput
from pgtrickle.refresh.failures import fenced_text, moved_away, renamed_meanwhile
from pgtrickle.refresh.fallbacks import (
    NO_DELTA_ON_SPARK,
    NOT_LOADED_ON_SPARK,
    full_instead,
    may_be_full,
    pushed_down,
)
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.lease_templates import is_plain
from pgtrickle.refresh.loads import (
    StagedLoad,
    at_snapshot_of,
    computed_inside,
    discard,
    is_computed_inside,
    stage_load,
    whole_content,
    write_load,
)
from pgtrickle.refresh.observed import ObservedSources, WaveStart, window_queries, with_confirmed_meanings
from pgtrickle.refresh.pending import FEW_ROWS, WindowQuery, analyse_buffers, expect_few, read_pending
from pgtrickle.refresh.progress import Progress, UnobservedProgress, report_done
from pgtrickle.refresh.spark_delta import delta_on_spark
from pgtrickle.refresh.spark_load import spark_obstacle, staged_on_spark
from pgtrickle.refresh.spark_query import Place, SparkInput, SparkQuery, all_at, spark_query
from pgtrickle.refresh.stages import (
    AppliedRefresh,
    Computed,
    ComputedRefresh,
    EngineDelta,
    FailedRefresh,
    NettedRefresh,
    PlannedRefresh,
    PlannedWave,
    ReadRefresh,
    refresh_record,
    timed,
    timed_together,
    without_read,
)
from pgtrickle.refresh.way_choice import WayInput, Ways, choose_ways
from pgtrickle.tracing import span

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.replica import ReplicaStore

SERIALIZATION_FAILURE = "40001"


P = ParamSpec("P")
Result = TypeVar("Result")
Read = ReadRefresh | Computed  # a small delta of a mirror is already computed when it was read


class _UnusableSnapshotError(Exception):
    """A statement failed without a savepoint: the transaction cannot read any more."""


class WaveRefresher:
    """Refreshes stream tables of one database over two connections: one reads at a snapshot, one applies.

    `loads_inside`: both are in the same database, whose server can compute loads.
    """

    loads_inside = True

    def __init__(
        self,
        reader: Connection,
        writer: Connection,
        engine: SparkEngine,
        compiled: Callable[[StreamTable], Compiled | None],
        limits: Limits,
        bulk_bytes: int = BULK_BYTES,
        costs: CostHistoryCache | None = None,
        replicas: ReplicaStore | None = None,
    ) -> None:
        self.replicas = replicas  # None: nothing is evaluated on Spark
        self.reader = reader
        self.writer = writer
        self.engine = engine
        self.compiled = compiled
        self.limits = limits
        self.include_unchanged = False  # true for cycles: all members are refreshed if one is
        self.bulk_bytes = bulk_bytes
        self.costs = costs if costs is not None else CostHistoryCache()
        self.progress: Progress = UnobservedProgress()
        self.snapshot_of = reader  # the session whose snapshot the authors' sessions import
        self._names = HeldNames()  # of the current wave

    def wave(self, ids: Sequence[int], *, initiated_by: str = "SCHEDULER") -> list[Outcome]:
        """The caller has announced it to the engine (`SparkEngine.announced`)."""
        return self._wave(ids, lambda _table: True, initiated_by) or []

    def wave_if_ready(
        self, ids: Sequence[int], *, keeps_session: bool, initiated_by: str = "SCHEDULER"
    ) -> list[Outcome] | None:
        """The same; None if a table cannot be refreshed in this wave."""

        def is_ready(table: StreamTable) -> bool:
            compiled = self.compiled(table)
            is_compiled = compiled is not None and not compiled.cycle
            is_loaded = table.status == "ACTIVE" and table.is_populated
            return is_compiled and is_loaded and is_plain(table, keeps_session=keeps_session)

        return self._wave(ids, is_ready, initiated_by)

    def _wave(
        self, ids: Sequence[int], is_ready: Callable[[StreamTable], bool], initiated_by: str
    ) -> list[Outcome] | None:
        """Runs first without savepoints. A read that fails makes the transaction unusable for all tables; then the wave
        is repeated with a savepoint per table."""
        try:
            return self._one_wave(ids, is_ready, initiated_by, guarded=len(ids) == 1)
        except _UnusableSnapshotError:
            return self._one_wave(ids, is_ready, initiated_by, guarded=True)

    def _one_wave(
        self, ids: Sequence[int], is_ready: Callable[[StreamTable], bool], initiated_by: str, *, guarded: bool
    ) -> list[Outcome] | None:
        with translated(), self._snapshot():
            moment = catalog.read_moment(self.reader)
            tables = self._tables(ids)
            if not all(map(is_ready, tables)):
                return None
            with span("plan", lambda: {"tables": [table.full_name for table in tables]}):
                wave = self._plan(tables, moment)
            report_done(self.progress, (o for o in wave.outcomes if o.action == NO_DATA))
            guarded = guarded or any(map(self._names_types, wave.refreshes))
            computed = self._compute(wave.refreshes, moment, guarded=guarded)
            return [*wave.outcomes, *self._finish_all(computed, moment, initiated_by)]

    def _compute(
        self, refreshes: Sequence[PlannedRefresh], moment: catalog.ReadPoint, *, guarded: bool = True
    ) -> list[Computed]:
        """Reads, nets and arranges the deltas of these tables; AUTO falls back to FULL if a delta is impossible."""
        elsewhere = [self._on_spark(p, moment) for p in refreshes if p.is_differential and p.engine.engine == SPARK]
        if elsewhere:  # after a fallback, PostgreSQL evaluates the new plan
            again = {each.table.pgt_id: each for each in elsewhere if isinstance(each, PlannedRefresh)}
            refreshes = [again.get(planned.table.pgt_id, planned) for planned in refreshes]
        moving = [p for p in refreshes if p.is_differential and p.engine.engine != SPARK]
        with timed_together(moving, "read"):
            self._expect_few(refreshes)
            read: Sequence[Read]
            if guarded:
                read = [self._guarded_step(planned, "read", self._read, planned, moment.cut) for planned in moving]
            else:
                read = self._unguarded_step(read_deltas, self.reader, moving, moment.cut, self.limits.max_delta_bytes)
        done = [each for each in elsewhere if not isinstance(each, PlannedRefresh)]
        return self._computed(refreshes, [*read, *done], moment, guarded=guarded)

    def _on_spark(self, planned: PlannedRefresh, moment: catalog.ReadPoint) -> Computed | PlannedRefresh:
        """Where Spark cannot represent a value, or a replica cannot be used at the cut, PostgreSQL evaluates it."""
        assert self.replicas is not None
        args = (self.reader, self.writer, self.engine, self.replicas, planned, *self._places(planned, moment))
        result = self._guarded_step(planned, "window", delta_on_spark, *args)
        if not isinstance(result, FailedRefresh):
            return ComputedRefresh(planned, result)
        if isinstance(result.error, NO_DELTA_ON_SPARK) and not planned.table.remotes:
            return pushed_down(planned, result.error)
        return result

    def _places(self, planned: PlannedRefresh, moment: catalog.ReadPoint) -> tuple[Place, Callable[[SparkInput], Cut]]:
        """Where Spark's inputs are read, and the cut of each that the content has."""
        return all_at(self.reader), lambda _source: planned.window(moment.cut).since

    def _computed(
        self,
        refreshes: Sequence[PlannedRefresh],
        read: Sequence[Read],
        moment: catalog.ReadPoint,
        *,
        guarded: bool = True,
    ) -> list[Computed]:
        """The content to write for each of `refreshes`, from the deltas that were read."""
        netted = net(self.engine, [each for each in read if isinstance(each, ReadRefresh)])
        arranged = self._arrange_all([each for each in netted if isinstance(each, NettedRefresh)], guarded=guarded)
        ended = [e for e in (*read, *netted, *arranged) if isinstance(e, ComputedRefresh | FailedRefresh)]
        by_table = {each.planned.table.pgt_id: each for each in ended}
        computed = [by_table.get(planned.table.pgt_id) or without_read(planned) for planned in refreshes]
        return [self._in_full(each, moment) if isinstance(each, FailedRefresh) else each for each in computed]

    def _expect_few(self, refreshes: Sequence[PlannedRefresh]) -> None:
        """Prefers index scans if all deltas are small and nothing is loaded."""
        rows = [planned.changes for planned in refreshes if planned.is_differential]
        if rows and max(rows) <= FEW_ROWS and not any(planned.is_load for planned in refreshes):
            expect_few(self.reader)

    def _arrange_all(self, netted: Sequence[NettedRefresh], *, guarded: bool) -> Sequence[Computed]:
        with timed_together([each.planned for each in netted], "arrange"):
            if any(len(each.delta) > MOST_PLANNED_AHEAD for each in netted):
                plan_for_many(self.reader)
            if guarded:
                return [self._guarded_step(each.planned, "arrange", self._arrange, each) for each in netted]
            return self._unguarded_step(arrange, self.reader, netted)

    def _in_full(self, failed: FailedRefresh, moment: catalog.ReadPoint) -> Computed:
        if not may_be_full(failed):
            return failed
        planned, error = failed.planned, failed.error
        if isinstance(error, TooManyRowsError):  # the cost: the time until it was given up, and that of FULL
            self._learn(planned, DIFFERENTIAL, moment, besides_ms=planned.table.last_full_ms or 0.0)
        return without_read(full_instead(planned, error))

    # -- read
    # -------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        begin(self.reader, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
            if not self.reader.closed:
                self.reader.commit()  # rollback() would drop prepared statements, to be planned again each time
        finally:
            if not self.reader.closed:
                self.reader.rollback()

    def _tables(self, ids: Sequence[int]) -> list[StreamTable]:
        return catalog.load_stream_tables(self.reader, ids)

    def _plan(self, tables: Sequence[StreamTable], moment: catalog.ReadPoint) -> PlannedWave:
        """Plans each table. Tables with nothing to do (unless `include_unchanged`) or with errors get outcomes."""
        begun = WaveStart(datetime.now(UTC), time.perf_counter(), len(tables))
        self._names = hold_names(self.reader, [t.pgt_id for t in tables if t.names_replaceable])
        seen = self._observe(tables, moment)
        self.costs.read(self.reader, (t for t in tables if t.is_populated and self._goes_by_cost(t)))
        planned_or_ended = [self._planned(table, seen, moment, begun) for table in tables]
        refreshes = [each for each in planned_or_ended if isinstance(each, PlannedRefresh)]
        if any(planned.table.runs_as_author for planned in refreshes):
            # Here, because PostgreSQL exports no snapshot inside a savepoint.
            place = hand_over(self.snapshot_of)
            refreshes = [replace(p, place=place) if p.table.runs_as_author else p for p in refreshes]
        return PlannedWave(tuple(refreshes), tuple(each for each in planned_or_ended if isinstance(each, Outcome)))

    def _goes_by_cost(self, table: StreamTable) -> bool:
        is_chosen = self.replicas is not None and (table.engine or self.limits.engine) == AUTO
        return table.refresh_mode == "AUTO" or is_chosen

    def _observe(self, tables: Sequence[StreamTable], moment: catalog.ReadPoint) -> ObservedSources:
        """The state of the sources at the snapshot, in few round trips for all tables."""
        prints = self._fingerprints(sorted({s.relid for t in tables for s in t.watched}))
        cuts = {t.pgt_id: since(t, moment.instance, moment.cut) for t in tables}
        windows_by_table = {
            t.pgt_id: window_queries(t, Window(cut, moment.cut), prints, self.compiled(t))
            for t in tables
            if (cut := cuts[t.pgt_id]) is not None
        }
        counts, sizes = self._pending([w for windows in windows_by_table.values() for w in windows.values()])
        pending = {i: {relid: counts[w] for relid, w in windows.items()} for i, windows in windows_by_table.items()}
        return ObservedSources(prints, cuts, pending, sizes)

    def _planned(
        self, table: StreamTable, seen: ObservedSources, moment: catalog.ReadPoint, begun: WaveStart
    ) -> PlannedRefresh | Outcome:
        if not table.is_in_place:
            return Outcome(table, FULL, None, moved_away(table))
        if table.lost_privilege is not None:
            return Outcome(table, FULL, None, lost_privilege(table))
        compiled = self.compiled(table)
        if compiled is None:
            return Outcome(table, PREPARE)
        pending = seen.pending.get(table.pgt_id, {})
        past = self.costs.past(table)
        ways = self._ways(table, compiled, past, pending, seen.sizes)
        decision = decide(
            table,
            differentiable=self._has_delta(compiled),
            reload=reload_reason(table, moment.instance, moment.cut, moment.time_zone),
            fingerprints=seen.fingerprints,
            pending=pending,
            source_rows=seen.sizes,
            limits=self.limits,
            past=ways.past,
            now=moment.time,
            untried=ways.untried,
        )
        # A rename that the snapshot shows is followed by preparing the table.
        if decision.action != PREPARE and table.pgt_id in self._names.lost:
            return Outcome(table, FULL, None, renamed_meanwhile(table))
        engine = ways.engine(decision.action)
        if self._lacks_replica(table, engine) and decision.action in (FULL, REINITIALIZE, DIFFERENTIAL):
            return Outcome(table, PREPARE)
        compiled.texts.moved += sum(p.captured for p in pending.values())
        # The frontier also advances past irrelevant changes, so that the buffer can be trimmed.
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
            begun.timings(),
            apart(compiled.settings, moment.session),
            engine=engine if decision.action != NO_DATA else PUSHED_DOWN,
        )

    def _has_delta(self, compiled: Compiled) -> bool:
        return compiled.template is not None

    def _ways(
        self,
        table: StreamTable,
        compiled: Compiled,
        past: CostHistory,
        pending: Mapping[int, Pending],
        sizes: Mapping[int, float],
    ) -> Ways:
        """The engines of a full and of a differential refresh of this table."""
        if table.remotes:
            return Ways(ON_SPARK, ON_SPARK, past.seen_with(SPARK, SPARK, self.limits.source_cost_weight))
        if self.replicas is None or table.mirror is not None:
            is_asked = self.replicas is None and (table.engine or self.limits.engine) == SPARK
            choice = IN_CHAIN if is_asked else PUSHED_DOWN
            return Ways(choice, choice, past)
        engine_input = EngineInput(table.engine, self.limits.engine, self.limits.source_cost_weight, None)
        rows = sum(p.rows for p in pending.values())
        size = sum(max(sizes.get(relid, 0.0), 0.0) for relid in pending)
        obstacle = partial(spark_obstacle, self.reader, self.replicas, table, compiled)
        return choose_ways(past, WayInput(engine_input, rows, size, obstacle))

    def _lacks_replica(self, table: StreamTable, engine: EngineChoice) -> bool:
        """Whether the engine is set to Spark, and a replica has to be built first."""
        is_named = (table.engine or self.limits.engine) == SPARK
        return is_named and engine.reason.code is ReasonCode.ENGINE_NO_REPLICA

    def _fingerprints(self, relids: Sequence[int]) -> Mapping[int, str | None]:
        return fingerprints(self.reader, relids)

    def _pending(self, windows: Sequence[WindowQuery]) -> tuple[dict[WindowQuery, Pending], dict[int, float]]:
        counts, sizes = read_pending(self.reader, windows)
        analyse_buffers(self.writer, counts)
        return counts, sizes

    def _names_types(self, planned: PlannedRefresh) -> bool:
        return planned.table.pgt_id in self._names.with_types

    def _require_names(self, planned: PlannedRefresh) -> None:
        """Compares the types that a query names again, directly before its statement: they cannot be locked, and the
        statements of other tables of the wave may have taken long."""
        if self._names_types(planned) and hold_names(self.reader, [planned.table.pgt_id]).lost:
            raise renamed_meanwhile(planned.table)

    def _read(self, planned: PlannedRefresh, cut: Cut) -> Read:
        self._require_names(planned)
        (read,) = read_deltas(self.reader, [planned], cut, self.limits.max_delta_bytes)
        return read

    def _arrange(self, netted: NettedRefresh) -> ComputedRefresh:
        self._require_names(netted.planned)
        (computed,) = arrange(self.reader, [netted])
        return computed

    # -- apply
    # ------------------------------------------------------------------------------------------------------------

    def _finish_all(self, computed: Sequence[Computed], moment: catalog.ReadPoint, initiated_by: str) -> list[Outcome]:
        """Applies deltas in one transaction; if it fails, each in its own, so that only the failing one fails."""
        small = [each for each in computed if isinstance(each, ComputedRefresh) and not each.planned.is_load]
        outcomes: list[Outcome] = []
        if len(small) > 1 and not any(self._names_types(each.planned) for each in small):
            try:
                with translated(), self.writer.transaction():
                    outcomes = [each.outcome() for each in self._write(small, moment, initiated_by)]
            except PgtrickleError:
                outcomes = []
        report_done(self.progress, outcomes)
        # Loads last: they may take long, and they read from the snapshot while they write.
        done = {outcome.table.pgt_id for outcome in outcomes}
        left = [each for each in computed if each.planned.table.pgt_id not in done]
        left.sort(key=lambda each: each.planned.is_load)
        for each in left:
            if each.planned.is_load:
                self.progress.begun(each.planned.table.pgt_id)
            outcomes.append(self._finish(each, moment, initiated_by))
            report_done(self.progress, outcomes[-1:])
        return outcomes

    def _finish(self, computed: Computed, moment: catalog.ReadPoint, initiated_by: str) -> Outcome:
        if isinstance(computed, FailedRefresh):
            return computed.outcome()
        try:
            self._require_names(computed.planned)
            if computed.planned.is_load and computed.planned.engine.engine == SPARK:
                return self._finish_on_spark(computed, moment, initiated_by)
            if self._is_inside(computed.planned) and not computed.planned.table.is_populated:
                first = self._load_first(computed, moment, initiated_by)
                if first is not None:
                    return first.outcome()
            with translated(), self._load_in_server(computed.planned) as loads, self.writer.transaction():
                (written,) = self._write([computed], moment, initiated_by, loads)
                if isinstance(written, FailedRefresh):
                    raise written.error  # the rollback also drops what was staged
        except TooFewKeptError as error:
            return self._finish(without_read(full_instead(computed.planned, error)), moment, initiated_by)
        except PgtrickleError as error:
            if isinstance(computed.content, EngineDelta) and computed.content.stage is not None:
                discard(self.writer, computed.content.stage)
            return FailedRefresh(computed.planned, error).outcome()
        return written.outcome()

    def _finish_on_spark(self, computed: ComputedRefresh, moment: catalog.ReadPoint, initiated_by: str) -> Outcome:
        """Where Spark cannot represent a value, or a replica cannot be used at the cut, PostgreSQL evaluates it."""
        planned = computed.planned
        query = planned.compiled.on_spark.get(lambda: spark_query(self.reader, planned.table, planned.compiled))
        assert isinstance(query, SparkQuery)
        assert self.replicas is not None
        place, _ = self._places(planned, moment)
        try:
            with (
                translated(),
                staged_on_spark(self.reader, self.writer, self.engine, self.replicas, planned, query, place) as staged,
                self.writer.transaction(),
            ):
                (written,) = self._write([computed], moment, initiated_by, {planned.table.pgt_id: staged})
                if isinstance(written, FailedRefresh):
                    raise written.error
        except NOT_LOADED_ON_SPARK as error:
            if planned.table.remotes:
                raise
            return self._finish(ComputedRefresh(pushed_down(planned, error), computed.content), moment, initiated_by)
        return written.outcome()

    def _is_inside(self, planned: PlannedRefresh) -> bool:
        return self.loads_inside and self.reader is not self.writer and is_computed_inside(planned)

    def _load_first(
        self, computed: ComputedRefresh, moment: catalog.ReadPoint, initiated_by: str
    ) -> AppliedRefresh | None:
        """A first load, in one transaction at the reader's snapshot: one INSERT ... SELECT, then the indexes, and the
        fence last, because it locks the catalog row. Returns None and writes nothing if the catalog row has changed
        since the snapshot (by a request for a refresh, for example), or if the table has rows of an earlier definition,
        which stay visible until the new ones are committed."""
        planned = computed.planned
        record = self._refresh_record(planned, moment, initiated_by)
        try:
            with translated(), at_snapshot_of(self.reader, self.writer):
                if not hold_storage(self.writer, planned.table.pgt_id):
                    raise moved_away(planned.table)
                if not is_empty(self.writer, planned.compiled.target.table):
                    return None
                rows = self._apply_all([computed], {planned.table.pgt_id: whole_content(planned)})
                if not fence(self.writer, [record]):
                    raise FencedError(fenced_text(planned.table.pgt_id))
                done = AppliedRefresh(planned, record, *rows[planned.table.pgt_id])
                self._record_refreshes([done], moment)
        except TransientError as error:
            if error.sqlstate != SERIALIZATION_FAILURE:
                raise
            return None
        return done

    def _load_in_server(self, planned: PlannedRefresh) -> AbstractContextManager[Mapping[int, StagedLoad]]:
        """The content of a load that the server computes; empty if `_write` stages it."""
        return computed_inside(self.reader, self.writer, planned) if self._is_inside(planned) else nullcontext({})

    def _write(
        self,
        refreshes: Sequence[ComputedRefresh],
        moment: catalog.ReadPoint,
        initiated_by: str,
        loaded: Mapping[int, StagedLoad] = MappingProxyType({}),
    ) -> list[AppliedRefresh | FailedRefresh]:
        """Writes rows, frontiers and history in a transaction. A table that another worker refreshed first fails."""
        loads = {**self._stage_loads([c for c in refreshes if c.planned.table.pgt_id not in loaded]), **loaded}
        records = {c.planned.table.pgt_id: self._refresh_record(c.planned, moment, initiated_by) for c in refreshes}
        if any(computed.has_more_rows_than(MOST_PLANNED_AHEAD) for computed in refreshes):
            plan_for_many(self.writer)
        if of_loads := [c.planned.table.pgt_id for c in refreshes if c.planned.is_load]:
            records |= with_confirmed_meanings(self.writer, {pgt_id: records[pgt_id] for pgt_id in of_loads})
        # After staging: a long load must not lock the catalog row while it is read.
        moved = fence(self.writer, list(records.values()))
        rows = self._apply_all([c for c in refreshes if c.planned.table.pgt_id in moved], loads)
        results: list[AppliedRefresh | FailedRefresh] = []
        for planned in (computed.planned for computed in refreshes):
            pgt_id = planned.table.pgt_id
            if pgt_id in moved:
                results.append(AppliedRefresh(planned, records[pgt_id], *rows[pgt_id]))
            else:
                results.append(FailedRefresh(planned, FencedError(fenced_text(pgt_id))))
        self._record_refreshes([each for each in results if isinstance(each, AppliedRefresh)], moment)
        return results

    def _stage_loads(self, refreshes: Sequence[ComputedRefresh]) -> dict[int, StagedLoad]:
        """Stages the content of each load."""
        loads: dict[int, StagedLoad] = {}
        for planned in (computed.planned for computed in refreshes if computed.planned.is_load):
            with timed_together([planned], "stage"), applied(self.reader, planned.settings):
                staged = stage_load(self.reader, self.writer, self.engine, planned, self.bulk_bytes)
            loads[planned.table.pgt_id] = staged
        return loads

    def _record_refreshes(self, refreshes: Sequence[AppliedRefresh], moment: catalog.ReadPoint) -> None:
        """Records refreshes: history, costs, and the number of changed rows."""
        for applied_one in refreshes:
            applied_one.planned.compiled.texts.moved += applied_one.inserted + applied_one.deleted
        shown = [each for each in refreshes if not each.planned.is_silent]
        if shown:
            write_history(self.writer, [each.committed() for each in shown])
            # The transaction with the cut stays open until we commit: compaction of buffers waits for it
            # (capture/compact.py).
            if self.reader is not self.writer:
                self.reader.execute("SELECT")
        for planned in (each.planned for each in refreshes):
            if planned.decision.action != NO_DATA:
                is_load = planned.decision.action not in (FULL, DIFFERENTIAL) or not planned.table.is_populated
                self._learn(planned, LOAD if is_load else planned.decision.action, moment)

    def _refresh_record(self, planned: PlannedRefresh, moment: catalog.ReadPoint, initiated_by: str) -> RefreshRecord:
        return refresh_record(planned, moment, initiated_by)

    def _learn(self, planned: PlannedRefresh, kind: str, moment: catalog.ReadPoint, *, besides_ms: float = 0.0) -> None:
        if planned.timings.is_cold:
            return
        timings = planned.timings
        self.costs.learn(
            planned.table,
            Sample(
                moment.time.timestamp(),
                kind,
                planned.changes,
                timings.share_ms + besides_ms,
                planned.engine.engine,
                timings.source_ms + besides_ms,
            ),
        )

    def _apply_all(
        self, refreshes: Sequence[ComputedRefresh], loads: Mapping[int, StagedLoad]
    ) -> dict[int, tuple[int, int]]:
        """Rows inserted and deleted, by table."""
        written: dict[int, tuple[int, int]] = {}
        for planned in (computed.planned for computed in refreshes):
            if (staged := loads.get(planned.table.pgt_id)) is not None:
                # What was computed is compared and written as texts, which must have all digits.
                settings = planned.settings if staged.stage is None else without_formats(planned.settings)
                with timed(planned, "apply"), applied(self.writer, settings):
                    written[planned.table.pgt_id] = write_load(self.writer, planned, staged)
        rest = [computed for computed in refreshes if computed.planned.table.pgt_id not in written]
        with timed_together([c.planned for c in rest if c.planned.is_differential], "apply"):
            return written | apply_deltas(self.writer, rest)

    def _guarded_step(
        self, planned: PlannedRefresh, part: str, step: Callable[P, Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result | FailedRefresh:
        """Runs one table's step in a savepoint, so that the snapshot stays usable for the others after a failure."""
        try:
            with timed_together([planned], part), translated(), self.reader.transaction():
                return step(*args, **kwargs)
        except PgtrickleError as error:
            return FailedRefresh(planned, error)

    def _unguarded_step(self, step: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Runs the step of all tables without savepoints."""
        try:
            with translated():
                return step(*args, **kwargs)
        except PgtrickleError as error:
            raise _UnusableSnapshotError from error
