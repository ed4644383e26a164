"""Refreshes units of one database: prepares tables, refreshes independent ones in one wave, and those that read one
another at one snapshot. Failures are recorded in the catalog; a lost connection is raised to the caller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import assert_never

from pgtrickle.db import catalog
from pgtrickle.db.connect import Connection, backend_pid, translated
from pgtrickle.db.statements import statement
from pgtrickle.define.compile import Compiled
from pgtrickle.define.prepare import prepare
from pgtrickle.define.privileges import lost_privilege
from pgtrickle.define.renames import has_renamed
from pgtrickle.define.template_cache import TemplateCache
from pgtrickle.dispatch.lease_stages import (
    ChainStage,
    CycleStage,
    LeaseStages,
    RefreshStage,
    WaveStage,
    cycle_relations,
    is_single,
    lease_stages,
    refresh_stages,
    units_apart,
)
from pgtrickle.dispatch.remote_tables import RemoteTables
from pgtrickle.errors import (
    ConfigError,
    DefinitionError,
    EngineLostError,
    FencedError,
    InvariantError,
    LostPrivilegeError,
    LostRaceError,
    OriginAwayError,
    OriginReplacedError,
    PgtrickleError,
    ReplicaUnavailableError,
    TransientError,
)
from pgtrickle.mirror.manage import MirrorManager
from pgtrickle.mirror.remote import OriginAt, RemoteRefresher
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.model.work import Unit
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh.cost_history import CostHistoryCache
from pgtrickle.refresh.cost_model import SPARK, Limits
from pgtrickle.refresh.culprit import find_culprit
from pgtrickle.refresh.cycle import CycleRefresher
from pgtrickle.refresh.decide import NO_DATA, PREPARE
from pgtrickle.refresh.failures import of_own_columns, record_failure
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.lease_templates import LeaseTemplates, is_plain
from pgtrickle.refresh.progress import Progress, UnobservedProgress
from pgtrickle.refresh.spark_load import needed_together
from pgtrickle.refresh.spark_query import spark_query
from pgtrickle.replica import ReplicaStore
from pgtrickle.settings import Settings
from pgtrickle.telemetry import PLAN_COMPILED, REFRESH_DONE, REFRESH_FAILED, REFRESH_FENCED, REPLICA_FAILED, event
from pgtrickle.tracing import span

log = logging.getLogger(__name__)

UNOBSERVED = UnobservedProgress()


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
        remotes: RemoteTables,
        make_pooler_worker: Callable[[], Worker] | None = None,
        replicas: ReplicaStore | None = None,
    ) -> None:
        """`make_pooler_worker` creates a worker with connections without session state; None: these already are."""
        self.name = name
        self.pid = backend_pid(writer)
        self.reader = reader
        self.writer = writer
        self.settings = settings
        self.cache = cache
        self._templates = LeaseTemplates()
        self._cycles_of: dict[int, frozenset[int]] = {}  # the relations of a table's cycle
        self._may_be_plain = True  # whether all tables may be plain, see is_plain()
        limits = self._limits = Limits(
            settings.differential_max_change_ratio,
            settings.max_buffer_rows,
            settings.prediction_ratio,
            settings.prediction_window * 60.0,
            settings.prediction_min_samples,
            settings.delta_work_mem_cap_mb << 20,
            engine=settings.engine,
            source_cost_weight=settings.source_cost_weight,
        )
        self.replicas = replicas
        self._costs = costs
        self._engine = engine
        self.refresher = CycleRefresher(
            reader, writer, engine, self._templates.get, limits, costs=costs, replicas=replicas
        )
        self._mirroring = mirroring
        self._remotes = remotes
        self._make_pooler_worker = make_pooler_worker
        self._keeps_session = make_pooler_worker is not None
        self._pooler_worker: Worker | None = None

    def is_usable(self) -> bool:
        return not any(c.closed or c.broken for c in (self.reader, self.writer))

    def close(self) -> None:
        if self._pooler_worker is not None:
            self._pooler_worker.close()
        for conn in (self.reader, self.writer):
            conn.close()

    def run(
        self, units: Sequence[Unit], changes_seen_at: float = 0.0, progress: Progress = UNOBSERVED
    ) -> list[Outcome]:
        """An outcome for each table that was refreshed or failed.

        `changes_seen_at`: when the polls of other databases that made them due began; 0: unknown.
        """
        self.refresher.progress = progress
        outcomes = self._run_without_plan(units)
        if outcomes is not None:
            return outcomes
        self._templates.entries = {}  # filled below: each table is already compiled, or is prepared
        stages = self._planned(units)
        outcomes = self._without_session(stages.apart, changes_seen_at) if stages.apart else []
        outcomes += self._stop_unprivileged(stages.stopped)
        if stages.mirrors:
            outcomes += self._mirrored(stages.mirrors, changes_seen_at)
        for table in stages.remote_first():
            outcomes += self._remote(table)
        ready, unready = self._all_ready(stages.own)
        outcomes += unready
        for stage in refresh_stages(stages.units, ready):
            outcomes += self._refresh_stage(stage)
        for table in stages.remote_last():
            outcomes += self._remote(table)
        return outcomes

    def _run_without_plan(self, units: Sequence[Unit]) -> list[Outcome] | None:
        """One wave of tables that are compiled and need no preparation. None: they have to be planned first."""
        if not units or not self._may_be_plain or not all(map(is_single, units)):
            return None
        ids = [i for unit in units for i in unit.members]
        self._cycles_of, started = {}, datetime.now(UTC)
        self._templates.entries = self.cache.entries(ids)
        with self._engine.announced():
            outcomes = self.refresher.wave_if_ready(ids, keeps_session=self._keeps_session)
        return None if outcomes is None else self._record_outcomes(outcomes, started)

    def _planned(self, units: Sequence[Unit]) -> LeaseStages:
        """The stages of the units, from the current catalog."""
        with translated():
            tables = catalog.load_stream_tables(self.writer, [i for u in units for i in u.members])
        if not all(is_plain(t, keeps_session=self._keeps_session) for t in tables):
            self._may_be_plain = False  # nor will they be next time
        apart = units_apart(units, tables) if self._keeps_session else ()
        self._cycles_of = cycle_relations(units, tables)
        stages = lease_stages(units, tables, apart)
        if any(t.origins or t.remotes for t in stages.stopped):
            self._mirroring.recheck(self.writer)  # the privilege may have been granted again at the origin
            with translated():
                tables = catalog.load_stream_tables(self.writer, [t.pgt_id for t in tables])
            stages = lease_stages(units, tables, apart)
        return stages

    def _refresh_stage(self, stage: RefreshStage) -> list[Outcome]:
        match stage:
            case WaveStage(ids):
                return self._wave(ids)
            case ChainStage(levels):
                return self._chain(levels)
            case CycleStage(tables):
                return self._cycle(tables)
            case _:
                assert_never(stage)

    def _stop_unprivileged(self, tables: Sequence[StreamTable]) -> list[Outcome]:
        """Stops tables whose author lacks a privilege."""
        started = datetime.now(UTC)
        outcomes = [Outcome(table, "FULL", None, lost_privilege(table)) for table in tables]
        for outcome in outcomes:
            self._report_failure(outcome, started)
        return outcomes

    def _is_compiled(self, table: StreamTable) -> bool:
        compiled = self.cache.get(table)
        if compiled is None or compiled.cycle != self._cycles_of.get(table.pgt_id, frozenset()):
            return False
        self._templates.put(table, compiled)
        return True

    def _without_session(self, units: Sequence[Unit], changes_seen_at: float) -> list[Outcome]:
        """Refreshes units with a table in pooler_compatibility_mode over connections for poolers (ADR 17)."""
        if self._pooler_worker is None or not self._pooler_worker.is_usable():
            assert self._make_pooler_worker is not None
            self._pooler_worker = self._make_pooler_worker()
        return self._pooler_worker.run(units, changes_seen_at, self.refresher.progress)

    def _mirrored(self, mirrors: Sequence[StreamTable], changes_seen_at: float) -> list[Outcome]:
        """Refreshes mirrors by origin; an unreachable origin delays only its mirrors."""
        self.refresher.progress.begun(mirrors[0].pgt_id)
        started = datetime.now(UTC)
        outcomes = self._mirroring.refresh(self.writer, mirrors, changes_seen_at)
        for outcome in outcomes:
            if isinstance(outcome.error, OriginAwayError):
                self._postpone(outcome.table, outcome.error)
            elif outcome.error is not None:
                self._report_failure(outcome, started)
            elif outcome.action != NO_DATA:
                self._log_refreshed(outcome)
        return outcomes

    def _remote(self, table: StreamTable) -> list[Outcome]:
        """Refreshes a table that reads replicas of other databases. One that does not answer delays only this table."""
        started = datetime.now(UTC)
        self.refresher.progress.begun(table.pgt_id)
        self._mirroring.recheck(self.writer, list(dict.fromkeys(remote.key for remote in table.remotes)))
        if not self._is_compiled(table) and (failed := self._prepare(table)) is not None:
            return [failed]
        try:
            outcomes = self._read_remote(table)
            for outcome in [again for o in outcomes if (again := _prepared_first(o)) is not None]:
                if (failed := self._prepare_anew(outcome)) is not None:
                    return [failed]
                outcomes = self._read_remote(table)
        except OriginReplacedError as error:
            outcomes = [Outcome(table, PREPARE, None, self._replaced(table, error))]
        except TransientError as error:
            if not self.is_usable():
                raise
            outcomes = [Outcome(table, PREPARE, None, error)]
        return [self._record_remote(outcome, started) for outcome in outcomes]

    def _read_remote(self, table: StreamTable) -> list[Outcome]:
        with self._engine.announced():
            return self._remotes.refresh(self.writer, table, self._remote_refresher)

    def _record_remote(self, outcome: Outcome, started: datetime) -> Outcome:
        error = outcome.error
        if isinstance(error, TransientError) and not isinstance(error, EngineLostError | FencedError | LostRaceError):
            self._postpone(outcome.table, error)
        elif error is not None:
            return self._record_failure(outcome, started)
        elif outcome.action == PREPARE:  # a source was altered again meanwhile
            self._postpone(outcome.table, waits := TransientError("a table of another database is being altered"))
            return replace(outcome, error=waits)
        elif outcome.action != NO_DATA:
            self._log_refreshed(outcome)
            assert self.replicas is not None
            self._remotes.advance(outcome.table, self.replicas)
        return outcome

    def _replaced(self, table: StreamTable, error: OriginReplacedError) -> PgtrickleError:
        """Its tables are searched by name in the database that has the name of the origin."""
        with translated():
            mirrors = catalog.load_stream_tables(self.writer, [remote.mirror_id for remote in table.remotes])
        errors = [self._mirroring.seek(self.writer, mirror, error) for mirror in mirrors if _is_at(mirror, error)]
        return next((each for each in errors if each is not error), error)

    def _remote_refresher(self, origins: dict[str, OriginAt], reader_key: str) -> RemoteRefresher:
        assert self.replicas is not None
        refresher = RemoteRefresher(
            self.reader,
            self.writer,
            self._engine,
            self._templates.get,
            self._limits,
            origins,
            reader_key,
            self._costs,
            self.replicas,
        )
        refresher.progress = self.refresher.progress
        return refresher

    def _log_refreshed(self, outcome: Outcome) -> None:
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
        """The tables that can be refreshed, with their sources captured, and the outcomes of the others. A reader of a
        table without content is prepared after that table was loaded: it is loaded afterwards anyway, so the load of
        its source need not be captured.
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
        self.refresher.progress.begun(levels[0][0])
        outcomes, later = self.refresher.chain(levels)
        outcomes = self._record_outcomes(outcomes, started)
        for level in levels:  # tables that had to be loaded, and their readers
            loaded = [i for i in level if i in later]
            if loaded:
                outcomes += self._wave(loaded)
        return outcomes

    def _cycle(self, tables: Sequence[StreamTable]) -> list[Outcome]:
        started = datetime.now(UTC)
        self.refresher.progress.begun(tables[0].pgt_id)
        if not self.settings.allow_circular:
            error = ConfigError(
                "stream tables that read one another are not refreshed while allow_circular is off",
                hint="switch it on and resume_stream_table, or alter their queries",
            )
            return self._record_outcomes([Outcome(t, "FULL", None, error) for t in tables], started)
        outcomes = self.refresher.cycle(tables, self.settings.max_fixpoint_iterations)
        unready = [o for o in outcomes if o.action == PREPARE]
        failed = [outcome for o in unready if (outcome := self._prepare_anew(o)) is not None]
        if unready and not failed:
            outcomes = self.refresher.cycle(tables, self.settings.max_fixpoint_iterations)
        return self._record_outcomes([o for o in outcomes if o.action != PREPARE], started) + failed

    def _wave(self, ids: Sequence[int]) -> list[Outcome]:
        started = datetime.now(UTC)
        with self._engine.announced():
            outcomes = self.refresher.wave(ids)
        return self._record_outcomes(outcomes, started)

    def _record_outcomes(self, outcomes: list[Outcome], started: datetime) -> list[Outcome]:
        """Records outcomes; prepares and refreshes tables that have to be prepared first."""
        again: list[int] = []
        failed: list[Outcome | None] = []
        ended: list[Outcome] = []
        for outcome in outcomes:
            if outcome.action == PREPARE:
                failed.append(self._prepare_anew(outcome))
                if failed[-1] is None:
                    again.append(outcome.table.pgt_id)
                continue
            if outcome.error is not None:
                ended.append(self._record_failure(outcome, started))
                continue
            ended.append(outcome)
            if outcome.action != NO_DATA:
                self._log_refreshed(outcome)
                if outcome.reason is not None and outcome.reason.code is ReasonCode.SOURCE_TRUNCATED:
                    # Or a column that only others read was dropped, and the capture function can only report "changed".
                    failed.append(self._prepare(outcome.table))
        if again:
            with self._engine.announced():
                repeated = self.refresher.wave(again)
            ended += [o if o.error is None else self._record_failure(o, started) for o in repeated]
        self._build_replicas(ended)
        return ended + [o for o in failed if o is not None]

    def _prepare_anew(self, outcome: Outcome) -> Outcome | None:
        """Prepares a table that was altered; with a reason, a source has changed and it is loaded again."""
        self.cache.drop(outcome.table.pgt_id)
        return self._prepare(outcome.table, reload=outcome.reason)

    def _prepare(self, table: StreamTable, *, reload: Reason | None = None) -> Outcome | None:
        """None: the table can be refreshed."""
        started = datetime.now(UTC)
        self.refresher.progress.begun(table.pgt_id)
        try:
            cycle = self._cycles_of.get(table.pgt_id, frozenset())
            with span("prepare", lambda: {"table": table.full_name}):
                table, compiled = prepare(self.writer, table, reload=reload, cycle=cycle, store=self.cache)
            if table.remotes or ((table.engine or self.settings.engine) == SPARK and table.mirror is None):
                self._ensure_replicas(table, compiled)
        except PgtrickleError as error:
            if not self.is_usable():
                raise
            if isinstance(error, OriginReplacedError):
                error = self._replaced(table, error)
            if isinstance(error, TransientError):
                self._postpone(table, error)
                return Outcome(table, PREPARE, None, error)
            failed = Outcome(table, "FULL", None, error)
            self._report_failure(failed, started)
            return failed
        self.cache.put(table, compiled)
        self._templates.put(table, compiled)
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

    def _ensure_replicas(self, table: StreamTable, compiled: Compiled) -> None:
        """Builds the replicas that a load on Spark reads. Raises SparkUnsupportedError if there is no such load."""
        with translated():
            query = compiled.on_spark.get(lambda: spark_query(self.writer, table, compiled))
        if isinstance(query, Reason):
            raise DefinitionError(str(query), hint="use engine => 'auto' or engine => 'postgres'")
        if table.remotes and self.replicas is None:
            raise ConfigError(f"{table.full_name} reads tables of other databases on Spark, which is not available")
        if self.replicas is not None:
            self._remotes.prepare(self.writer, table, query, self.replicas, self.settings.engine)
            elsewhere = {remote.relid for remote in table.remotes}
            for each in query.inputs.values():
                if each.need.relid in elsewhere:
                    continue
                need = needed_together(self.writer, each.need, self.settings.engine)
                self.replicas.ensure(self.writer, need, reader=table.pgt_id)

    def _build_replicas(self, outcomes: Sequence[Outcome]) -> None:
        """Builds replicas for tables that AUTO would have refreshed on Spark."""
        for outcome in outcomes:
            is_wanted = outcome.engine is not None and outcome.engine.reason.code is ReasonCode.ENGINE_NO_REPLICA
            compiled = self._templates.get(outcome.table) if is_wanted else None
            if compiled is None or outcome.error is not None:
                continue
            try:
                self._ensure_replicas(outcome.table, compiled)
            except PgtrickleError as error:
                if not self.is_usable():
                    raise
                log.warning(
                    "A replica was not built",
                    extra=event(
                        REPLICA_FAILED, database=self.name, table=outcome.table.full_name, detail=error.one_line()
                    ),
                )

    def _postpone(self, table: StreamTable, error: TransientError) -> None:
        """Reports the reason and does not count it as a failure: a long transaction on a source may take hours."""
        with translated():
            postponed = {"id": table.pgt_id, "code": error.code, "message": error.one_line()}
            self.writer.execute(statement("refresh_postponed"), postponed)
        log.warning(
            "Refresh postponed",
            extra=event(REFRESH_FAILED, database=self.name, table=table.full_name, detail=error.one_line()),
        )

    def _record_failure(self, outcome: Outcome, started: datetime) -> Outcome:
        """A source that was renamed after the refresh began may be the reason: the table is refreshed again, and that
        refresh follows the new name."""
        if not isinstance(outcome.error, TransientError) and has_renamed(self.writer, outcome.table):
            outcome = replace(outcome, error=FencedError("a source was renamed during the refresh"))
        self._report_failure(outcome, started)
        return outcome

    def _report_failure(self, outcome: Outcome, started: datetime) -> None:
        error = outcome.error
        if error is None:
            raise InvariantError("a failure without an error")
        if isinstance(error, FencedError | LostRaceError):
            log.info(
                "Refresh skipped: another worker committed first",
                extra=event(REFRESH_FENCED, database=self.name, table=outcome.table.full_name),
            )
            return
        if isinstance(error, TransientError) and not self.is_usable():
            raise error
        if isinstance(error, EngineLostError):
            log.warning("Spark did not answer; the work is retried", extra=event(REFRESH_FAILED, detail=error.message))
            return
        error = of_own_columns(self.writer, outcome.table, error)
        culprit = find_culprit(self.writer, outcome.table, error)
        with translated():
            status = record_failure(
                self.writer,
                outcome.table,
                error,
                action=outcome.action,
                started_at=started,
                max_consecutive=self.settings.max_consecutive_errors,
                empty=isinstance(error, LostPrivilegeError) and self.settings.on_lost_privilege == "empty",
                culprit=culprit,
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


def _is_at(mirror: StreamTable, error: OriginReplacedError) -> bool:
    """Whether the error is about the origin of this mirror, or its table."""
    return (
        mirror.mirror is not None
        and error.key == mirror.mirror.key
        and (error.relid is None or error.relid == mirror.mirror.relid)
    )


def _prepared_first(outcome: Outcome) -> Outcome | None:
    """If the table has to be prepared and refreshed again. A replica that became unusable meanwhile, by a TRUNCATE for
    example, is built again then."""
    if outcome.error is None:
        return outcome if outcome.action == PREPARE else None
    return Outcome(outcome.table, PREPARE) if isinstance(outcome.error, ReplicaUnavailableError) else None
