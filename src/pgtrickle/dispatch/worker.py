"""Refreshes units of one database: prepares what is new, one wave for the tables that stand alone, one instant for
those that read one another. What fails is recorded in the catalog; a lost connection is the caller's to see."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pgtrickle.db import catalog
from pgtrickle.db.connect import Connection, backend_pid, translated
from pgtrickle.define.compile import Compiled
from pgtrickle.define.prepare import prepare
from pgtrickle.define.privileges import lost_privilege
from pgtrickle.define.renames import has_renamed
from pgtrickle.define.template_cache import TemplateCache, version
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
from pgtrickle.model.work import CYCLIC, Unit
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
        members = [i for u in units for i in u.members]
        if members and self._may_be_plain and all(len(u.members) == 1 and u.kind != CYCLIC for u in units):
            self._cycles_of, started = {}, datetime.now(UTC)
            found = self.refresher.wave_if(members, self._are_plain)
            if found is not None:
                return self._handled(found, started)
        with translated():
            tables = catalog.load_stream_tables(self.writer, members)
        outcomes: list[Outcome] = []
        apart = {t.pgt_id for t in tables if t.keeps_no_session}
        if apart and self._make_beside is not None:
            mine = [u for u in units if apart.isdisjoint(u.members)]
            outcomes += self._without_session([u for u in units if u not in mine], changes_seen_at)
            units = mine
            tables = [t for t in tables if any(t.pgt_id in u.members for u in mine)]
        relids = {t.pgt_id: t.relid for t in tables}
        cycles = [u for u in units if u.kind == CYCLIC]
        self._cycles_of = {i: frozenset(relids[j] for j in u.members if j in relids) for u in cycles for i in u.members}
        tables = [t for t in tables if t.status in ("INITIALIZING", "ACTIVE")]
        if any(t.lost_privilege is not None and t.origins for t in tables):
            self._mirroring.recheck(self.writer)  # it may have been granted again, elsewhere
            with translated():
                tables = catalog.load_stream_tables(self.writer, [t.pgt_id for t in tables])
        tables = self._permitted(tables, outcomes)
        mirrors = [t for t in tables if t.mirror is not None]  # prepared at their origins, which may be away
        if mirrors:
            outcomes += self._mirrored(mirrors, changes_seen_at)
            # What reads them sees them as they were committed just now or, where an origin is away, as they were.
            units = [_without(unit, {t.pgt_id for t in mirrors}) for unit in units]
        ready = self._all_ready([t for t in tables if t.mirror is None], outcomes)
        alone = [i for u in units if len(u.members) == 1 and u.kind != CYCLIC for i in u.members if i in ready]
        if alone:
            outcomes += self._wave(alone)
        for unit in units:
            if unit.kind == CYCLIC:
                if all(i in ready for i in unit.members):  # none goes without the others
                    outcomes += self._cycle([ready[i] for i in unit.members])
            elif len(unit.members) > 1:
                outcomes += self._chain([[i for i in level if i in ready] for level in unit.levels])
        return outcomes

    def _permitted(self, tables: Sequence[StreamTable], outcomes: list[Outcome]) -> list[StreamTable]:
        """Without those that lack a privilege, which stop: not even a plan is made for them."""
        started = datetime.now(UTC)
        for table in tables:
            if table.lost_privilege is not None:
                outcomes.append(Outcome(table, "FULL", None, lost_privilege(table)))
                self._failed(outcomes[-1], started)
        return [t for t in tables if t.lost_privilege is None]

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

    def _all_ready(self, tables: Sequence[StreamTable], outcomes: list[Outcome]) -> dict[int, StreamTable]:
        """Those that can be refreshed, their sources captured. One that reads a table which is yet to be loaded is
        prepared after that: as it is loaded itself afterwards, nobody needs that table's load in a buffer.
        """
        waiting: set[int] = set()
        if any(t.origins is not None for t in tables):
            for table, error in self._mirroring.unready(self.writer, [t.pgt_id for t in tables]):
                self._postpone(table, error)
                outcomes.append(Outcome(table, PREPARE, None, error))
                waiting.add(table.pgt_id)
        unloaded = {t.relid for t in tables if not t.is_populated}
        ready: dict[int, StreamTable] = {}
        for table in tables:
            if table.pgt_id in waiting:
                continue
            follows = not table.is_populated and any(s.relid in unloaded for s in table.sources)
            if (follows and table.pgt_id not in self._cycles_of) or self._ready(table, outcomes):
                ready[table.pgt_id] = table
        return ready

    def _ready(self, table: StreamTable, outcomes: list[Outcome]) -> bool:
        return self._is_compiled(table) or self._prepare(table, outcomes)

    def _chain(self, levels: Sequence[Sequence[int]]) -> list[Outcome]:
        started = datetime.now(UTC)
        depths = [level for level in levels if level]
        outcomes, later = self.refresher.chain(depths)
        outcomes = self._handled(outcomes, started)
        for level in depths:  # what had to be loaded, and what reads that
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
        failed: list[Outcome] = []
        outcomes = self.refresher.cycle(tables, self.settings.max_fixpoint_iterations)
        for outcome in outcomes:
            if outcome.action == PREPARE:
                self.cache.drop(outcome.table.pgt_id)
                self._prepare(outcome.table, failed, reload=outcome.reason)
        if any(o.action == PREPARE for o in outcomes) and not failed:
            outcomes = self.refresher.cycle(tables, self.settings.max_fixpoint_iterations)
        return self._handled([o for o in outcomes if o.action != PREPARE], started) + failed

    def _wave(self, ids: Sequence[int]) -> list[Outcome]:
        started = datetime.now(UTC)
        return self._handled(self.refresher.wave(ids), started)

    def _handled(self, outcomes: list[Outcome], started: datetime) -> list[Outcome]:
        again: list[int] = []
        failed: list[Outcome] = []
        for outcome in outcomes:
            if outcome.action == PREPARE:
                self.cache.drop(outcome.table.pgt_id)
                # Altered just now; or, with a reason, a source changed under it: then it is loaded anew.
                if self._prepare(outcome.table, failed, reload=outcome.reason):
                    again.append(outcome.table.pgt_id)
            elif outcome.error is not None:
                self._not_read(outcome, started)
            elif outcome.action != NO_DATA:
                self._done(outcome)
                if outcome.reason is not None and outcome.reason.code is ReasonCode.SOURCE_TRUNCATED:
                    # Or a column that only others read is gone, and the capture function can but say "changed".
                    self._prepare(outcome.table, failed)
        if again:
            anew = self.refresher.wave(again)
            for outcome in anew:
                if outcome.error is not None:
                    self._not_read(outcome, started)
            outcomes = [o for o in outcomes if o.action != PREPARE] + anew
        return outcomes + failed

    def _prepare(self, table: StreamTable, failed: list[Outcome], *, reload: Reason | None = None) -> bool:
        started = datetime.now(UTC)
        try:
            cycle = self._cycles_of.get(table.pgt_id, frozenset())
            table, compiled = prepare(self.writer, table, reload=reload, cycle=cycle)
        except PgtrickleError as error:
            if not self.is_usable():
                raise
            if isinstance(error, TransientError):
                self._postpone(table, error)
                failed.append(Outcome(table, PREPARE, None, error))
            else:
                failed.append(Outcome(table, "FULL", None, error))
                self._failed(failed[-1], started)
            return False
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
        return True

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


def _without(unit: Unit, done: set[int]) -> Unit:
    levels = tuple(kept for level in unit.levels if (kept := tuple(i for i in level if i not in done)))
    return replace(unit, levels=levels)
