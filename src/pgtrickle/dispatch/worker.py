"""Refreshes units of one database: prepares what is new, one wave for the tables that stand alone, one instant for
those that read one another. What fails is recorded in the catalog; a lost connection is the caller's to see."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import assert_never

from pgtrickle.db import catalog
from pgtrickle.db.connect import Connection, backend_pid, translated
from pgtrickle.define.compile import Compiled
from pgtrickle.define.prepare import prepare
from pgtrickle.define.privileges import lost_privilege
from pgtrickle.define.renames import has_renamed
from pgtrickle.define.template_cache import TemplateCache, version
from pgtrickle.dispatch.lease_stages import (
    ChainStage,
    CycleStage,
    LeaseStages,
    MoveStage,
    WaveStage,
    cycle_relations,
    is_single,
    lease_stages,
    move_stages,
    units_apart,
)
from pgtrickle.errors import (
    ConfigError,
    EngineLostError,
    FencedError,
    InvariantError,
    LostPrivilegeError,
    LostRaceError,
    OriginAwayError,
    PgtrickleError,
    TransientError,
)
from pgtrickle.mirror.manage import MirrorManager
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.model.work import Unit
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh.cost_history import CostHistoryCache
from pgtrickle.refresh.cost_model import Limits
from pgtrickle.refresh.cycle import CycleRefresher
from pgtrickle.refresh.decide import NO_DATA, PREPARE
from pgtrickle.refresh.failures import record_failure
from pgtrickle.refresh.job import Outcome
from pgtrickle.settings import Settings
from pgtrickle.telemetry import PLAN_COMPILED, REFRESH_DONE, REFRESH_FAILED, REFRESH_FENCED, event

log = logging.getLogger(__name__)


class Worker:
    """Two connections, used by one thread at a time: one reads at a snapshot, one prepares and applies."""

    def __init__(
        self,
        name: str,
        reader: Connection,
        writer: Connection,
        engine: SparkEngine,
        settings: Settings,
        cache: TemplateCache,
        costs: CostHistoryCache,
        mirroring: MirrorManager,
        beside: Callable[[], Worker] | None = None,
    ) -> None:
        """`beside` makes one whose connections keep nothing in their session; None: these do not."""
        self.name = name
        self.reader = reader
        self.writer = writer
        self.settings = settings
        self.cache = cache
        # Of the units at hand: the cache may be smaller than they are many.
        self._held: dict[int, tuple[tuple[object, ...], Compiled]] = {}
        self._cycles_of: dict[int, frozenset[int]] = {}  # the relations of a table's cycle
        self._may_be_plain = True  # the database's tables: see _are_plain
        limits = Limits(
            settings.differential_max_change_ratio,
            settings.max_buffer_rows,
            settings.prediction_ratio,
            settings.prediction_window * 60.0,
            settings.prediction_min_samples,
            settings.delta_work_mem_cap_mb << 20,
        )
        self.refresher = CycleRefresher(reader, writer, engine, self._compiled, limits, costs=costs)
        self._mirroring = mirroring
        self._make_beside = beside
        self._beside: Worker | None = None

    def is_usable(self) -> bool:
        return not any(c.closed or c.broken for c in (self.reader, self.writer))

    def close(self) -> None:
        if self._beside is not None:
            self._beside.close()
        for conn in (self.reader, self.writer):
            conn.close()

    @property
    def backend_pid(self) -> int | None:
        return backend_pid(self.writer)

    def run(self, units: Sequence[Unit], changes_seen_at: float = 0.0) -> list[Outcome]:
        """An outcome for each table that there was something to do for, or that failed.

        `changes_seen_at`: when the looks at other databases began that made them due; 0: nobody knows.
        """
        self._held.clear()
        outcomes = self._run_plain(units)
        if outcomes is not None:
            return outcomes
        stages = self._planned(units)
        outcomes = self._without_session(stages.apart, changes_seen_at) if stages.apart else []
        outcomes += self._stop(stages.stopped)
        if stages.mirrors:
            outcomes += self._mirrored(stages.mirrors, changes_seen_at)
        ready, unready = self._all_ready(stages.own)
        outcomes += unready
        for stage in move_stages(stages.units, ready):
            outcomes += self._move(stage)
        return outcomes

    def _run_plain(self, units: Sequence[Unit]) -> list[Outcome] | None:
        """One wave without another look at the catalog, where nothing but that is to be done. None: it is not."""
        if not units or not self._may_be_plain or not all(map(is_single, units)):
            return None
        self._cycles_of, started = {}, datetime.now(UTC)
        found = self.refresher.wave_if([i for u in units for i in u.members], self._are_plain)
        return None if found is None else self._handled(found, started)

    def _planned(self, units: Sequence[Unit]) -> LeaseStages:
        """What is to be done for the units, from what the catalog says now."""
        with translated():
            tables = catalog.load_stream_tables(self.writer, [i for u in units for i in u.members])
        apart = units_apart(units, tables) if self._make_beside is not None else ()
        self._cycles_of = cycle_relations(units, tables)
        stages = lease_stages(units, tables, apart)
        if any(t.origins for t in stages.stopped):
            self._mirroring.recheck(self.writer)  # it may have been granted again, elsewhere
            with translated():
                tables = catalog.load_stream_tables(self.writer, [t.pgt_id for t in tables])
            stages = lease_stages(units, tables, apart)
        return stages

    def _move(self, stage: MoveStage) -> list[Outcome]:
        match stage:
            case WaveStage(ids):
                return self._wave(ids)
            case ChainStage(levels):
                return self._chain(levels)
            case CycleStage(tables):
                return self._cycle(tables)
            case _:
                assert_never(stage)

    def _stop(self, tables: Sequence[StreamTable]) -> list[Outcome]:
        """Those that lack a privilege."""
        started = datetime.now(UTC)
        outcomes = [Outcome(table, "FULL", None, lost_privilege(table)) for table in tables]
        for outcome in outcomes:
            self._failed(outcome, started)
        return outcomes

    def _are_plain(self, tables: Sequence[StreamTable]) -> bool:
        """Whether they can go as they were read: nothing is to be prepared, loaded, fetched elsewhere or done apart."""
        may_be_apart = self._make_beside is not None
        if any(t.mirror or t.origins is not None or (t.keeps_no_session and may_be_apart) for t in tables):
            self._may_be_plain = False  # nor will they be the next time
            return False
        return all(t.status == "ACTIVE" and t.is_populated and self._is_compiled(t) for t in tables)

    def _is_compiled(self, table: StreamTable) -> bool:
        compiled = self.cache.get(table)
        if compiled is None or compiled.cycle != self._cycles_of.get(table.pgt_id, frozenset()):
            return False
        self._held[table.pgt_id] = (version(table), compiled)
        return True

    def _without_session(self, units: Sequence[Unit], changes_seen_at: float) -> list[Outcome]:
        """Units with a table in pooler_compatibility_mode, over connections like those for a pooler (ADR 17)."""
        if self._beside is None or not self._beside.is_usable():
            assert self._make_beside is not None
            self._beside = self._make_beside()
        return self._beside.run(units, changes_seen_at)

    def _mirrored(self, mirrors: Sequence[StreamTable], changes_seen_at: float) -> list[Outcome]:
        """By origin; one that is away delays its mirrors alone."""
        started = datetime.now(UTC)
        outcomes = self._mirroring.refresh(self.writer, mirrors, changes_seen_at)
        for outcome in outcomes:
            if isinstance(outcome.error, OriginAwayError):
                self._postpone(outcome.table, outcome.error)
            elif outcome.error is not None:
                self._failed(outcome, started)
            elif outcome.action != NO_DATA:
                self._done(outcome)
        return outcomes

    def _done(self, outcome: Outcome) -> None:
        log.info(
            "Refreshed",
            extra=event(
                REFRESH_DONE,
                database=self.name,
                table=outcome.table.full_name,
                action=outcome.action,
                inserted=outcome.inserted,
                deleted=outcome.deleted,
                ms=round(sum(outcome.timings.values())),
            ),
        )

    def _all_ready(self, tables: Sequence[StreamTable]) -> tuple[dict[int, StreamTable], list[Outcome]]:
        """Those that can be refreshed, their sources captured, and the outcomes of the others. One that reads a table
        which is yet to be loaded is prepared after that: as it is loaded itself afterwards, nobody needs that table's
        load in a buffer.
        """
        outcomes: list[Outcome] = []
        if any(t.origins is not None for t in tables):
            for table, error in self._mirroring.unready(self.writer, [t.pgt_id for t in tables]):
                self._postpone(table, error)
                outcomes.append(Outcome(table, PREPARE, None, error))
        waiting = {o.table.pgt_id for o in outcomes}
        unloaded = {t.relid for t in tables if not t.is_populated}
        ready: dict[int, StreamTable] = {}
        for table in tables:
            if table.pgt_id in waiting:
                continue
            follows = not table.is_populated and any(s.relid in unloaded for s in table.sources)
            may_wait = follows and table.pgt_id not in self._cycles_of
            failed = None if may_wait or self._is_compiled(table) else self._prepare(table)
            if failed is None:
                ready[table.pgt_id] = table
            else:
                outcomes.append(failed)
        return ready, outcomes

    def _chain(self, levels: Sequence[Sequence[int]]) -> list[Outcome]:
        started = datetime.now(UTC)
        outcomes, later = self.refresher.chain(levels)
        outcomes = self._handled(outcomes, started)
        for level in levels:  # what had to be loaded, and what reads that
            loaded = [i for i in level if i in later]
            if loaded:
                outcomes += self._wave(loaded)
        return outcomes

    def _cycle(self, tables: Sequence[StreamTable]) -> list[Outcome]:
        started = datetime.now(UTC)
        if not self.settings.allow_circular:
            error = ConfigError(
                "stream tables that read one another are not refreshed while allow_circular is off",
                hint="switch it on and resume_stream_table, or alter their queries",
            )
            return self._handled([Outcome(t, "FULL", None, error) for t in tables], started)
        outcomes = self.refresher.cycle(tables, self.settings.max_fixpoint_iterations)
        unready = [o for o in outcomes if o.action == PREPARE]
        failed = [found for o in unready if (found := self._prepare_anew(o)) is not None]
        if unready and not failed:
            outcomes = self.refresher.cycle(tables, self.settings.max_fixpoint_iterations)
        return self._handled([o for o in outcomes if o.action != PREPARE], started) + failed

    def _wave(self, ids: Sequence[int]) -> list[Outcome]:
        started = datetime.now(UTC)
        return self._handled(self.refresher.wave(ids), started)

    def _handled(self, outcomes: list[Outcome], started: datetime) -> list[Outcome]:
        """Records what there is to record, prepares what has to be prepared, and refreshes that."""
        again: list[int] = []
        failed: list[Outcome | None] = []
        for outcome in outcomes:
            if outcome.action == PREPARE:
                failed.append(self._prepare_anew(outcome))
                if failed[-1] is None:
                    again.append(outcome.table.pgt_id)
            elif outcome.error is not None:
                self._not_read(outcome, started)
            elif outcome.action != NO_DATA:
                self._done(outcome)
                if outcome.reason is not None and outcome.reason.code is ReasonCode.SOURCE_TRUNCATED:
                    # Or a column that only others read is gone, and the capture function can but say "changed".
                    failed.append(self._prepare(outcome.table))
        if again:
            anew = self.refresher.wave(again)
            for outcome in anew:
                if outcome.error is not None:
                    self._not_read(outcome, started)
            outcomes = [o for o in outcomes if o.action != PREPARE] + anew
        return outcomes + [o for o in failed if o is not None]

    def _prepare_anew(self, outcome: Outcome) -> Outcome | None:
        """Altered just now; or, with a reason, a source changed under it: then it is loaded anew."""
        self.cache.drop(outcome.table.pgt_id)
        return self._prepare(outcome.table, reload=outcome.reason)

    def _prepare(self, table: StreamTable, *, reload: Reason | None = None) -> Outcome | None:
        """None: the table can be refreshed."""
        started = datetime.now(UTC)
        try:
            cycle = self._cycles_of.get(table.pgt_id, frozenset())
            table, compiled = prepare(self.writer, table, reload=reload, cycle=cycle)
        except PgtrickleError as error:
            if not self.is_usable():
                raise
            if isinstance(error, TransientError):
                self._postpone(table, error)
                return Outcome(table, PREPARE, None, error)
            failed = Outcome(table, "FULL", None, error)
            self._failed(failed, started)
            return failed
        self.cache.put(table, compiled)
        self._held[table.pgt_id] = (version(table), compiled)
        log.info(
            "Compiled",
            extra=event(
                PLAN_COMPILED,
                database=self.name,
                table=table.full_name,
                full_because=compiled.reason and str(compiled.reason),
            ),
        )
        return None

    def _postpone(self, table: StreamTable, error: TransientError) -> None:
        """A long transaction on a source is nobody's fault and may take hours: said, not counted."""
        with translated():
            self.writer.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET last_error_code = %(code)s, last_error_message = %(message)s "
                "WHERE pgt_id = %(id)s AND (last_error_code, last_error_message) IS DISTINCT FROM "
                "(%(code)s, %(message)s)",
                {"id": table.pgt_id, "code": error.code, "message": error.one_line()},
            )
        log.warning(
            "Not ready yet",
            extra=event(REFRESH_FAILED, database=self.name, table=table.full_name, detail=error.one_line()),
        )

    def _compiled(self, table: StreamTable) -> Compiled | None:
        entry = self._held.get(table.pgt_id)
        return entry[1] if entry is not None and entry[0] == version(table) else None

    def _not_read(self, outcome: Outcome, started: datetime) -> None:
        """A source that was renamed after the refresh began may be the reason: it is followed in the next turn."""
        if not isinstance(outcome.error, TransientError) and has_renamed(self.writer, outcome.table):
            log.info(
                "A source was renamed meanwhile",
                extra=event(REFRESH_FENCED, database=self.name, table=outcome.table.full_name),
            )
            return
        self._failed(outcome, started)

    def _failed(self, outcome: Outcome, started: datetime) -> None:
        error = outcome.error
        if error is None:
            raise InvariantError("a failure without an error")
        if isinstance(error, FencedError | LostRaceError):
            log.info(
                "Somebody else was first",
                extra=event(REFRESH_FENCED, database=self.name, table=outcome.table.full_name),
            )
            return
        if isinstance(error, TransientError) and not self.is_usable():
            raise error
        if isinstance(error, EngineLostError):
            log.warning(
                "Spark did not answer; the work is tried again", extra=event(REFRESH_FAILED, detail=error.message)
            )
            return
        with translated():
            status = record_failure(
                self.writer,
                outcome.table,
                error,
                action=outcome.action,
                started_at=started,
                max_consecutive=self.settings.max_consecutive_errors,
                empty=isinstance(error, LostPrivilegeError) and self.settings.on_lost_privilege == "empty",
            )
        log.warning(
            "Refresh failed",
            extra=event(
                REFRESH_FAILED,
                database=self.name,
                table=outcome.table.full_name,
                status=status,
                detail=error.one_line(),
            ),
        )
