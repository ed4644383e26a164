"""One database's loop: look, prepare what is new, refresh what is due, tidy up. A lost connection starts it over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from pgtrickle.apply.stage import sweep_stages
from pgtrickle.capture.install import collect_garbage
from pgtrickle.capture.trim import index_long_buffers, trim_all
from pgtrickle.db import catalog
from pgtrickle.db.connect import Connection, connect, translated
from pgtrickle.db.notify import wait_for_notify
from pgtrickle.db.statements import statement
from pgtrickle.errors import EngineLostError, FencedError, InvariantError, PgtrickleError, TransientError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.pipeline.spark import SparkEngine
from pgtrickle.runtime.compile import Compiled
from pgtrickle.runtime.decide import NO_DATA, PREPARE, TRUNCATED
from pgtrickle.runtime.failures import record_failure
from pgtrickle.runtime.prepare import prepare
from pgtrickle.runtime.refresh import Outcome, Refresher
from pgtrickle.scheduler.cost import Limits
from pgtrickle.scheduler.graph import levels, together
from pgtrickle.scheduler.schedule import is_due
from pgtrickle.settings import Settings
from pgtrickle.telemetry import (
    DATABASE_BACK,
    DATABASE_LOST,
    PLAN_COMPILED,
    REFRESH_DONE,
    REFRESH_FAILED,
    REFRESH_FENCED,
    event,
)

log = logging.getLogger(__name__)

TIDY_SECONDS = 5.0
BACKOFF_SECONDS = (0.25, 0.5, 1.0, 2.0, 5.0)
BUSY_SECONDS = 2.0  # between two tries to prepare a table whose source is locked


class DatabaseLoop:
    """Runs in a thread of its own until `stop` is set."""

    def __init__(self, name: str, dsn: str, engine: SparkEngine, settings: Settings, stop: threading.Event) -> None:
        self.name = name
        self.dsn = dsn
        self.engine = engine
        self.settings = settings
        self.stop = stop
        self.compiled: dict[int, tuple[tuple[object, ...], Compiled]] = {}

    def run(self) -> None:
        failures = 0
        while not self.stop.is_set():
            try:
                with Session(self) as session:
                    if failures:
                        log.info("Connected again", extra=event(DATABASE_BACK, database=self.name))
                    failures = 0
                    session.loop()
            except TransientError as error:
                log.warning(
                    "Database is not reachable; trying again",
                    extra=event(DATABASE_LOST, database=self.name, detail=error.message),
                )
                self.stop.wait(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
                failures += 1


class Session:
    """The connections of one database while they last."""

    def __init__(self, owner: DatabaseLoop) -> None:
        self.owner = owner
        self.settings = owner.settings
        self.control: Connection
        self.tidied = 0.0
        self.busy: dict[int, float] = {}
        self.indexing: threading.Thread | None = None

    def __enter__(self) -> Session:
        opened: list[Connection] = []
        try:
            for role in ("control", "reader", "writer"):
                opened.append(connect(self.owner.dsn, role=role, autocommit=True))
            self.control, self.reader, self.writer = opened
            with translated():
                self.control.execute("LISTEN pgtrickle_wake")
                for conn in (self.reader, self.writer):
                    conn.execute(
                        "SELECT set_config('jit', 'off', false), set_config('work_mem', %s, false)",
                        (f"{self.settings.merge_work_mem_mb}MB",),
                    )
        except BaseException:
            for conn in opened:
                conn.close()
            raise
        limits = Limits(
            self.settings.differential_max_change_ratio,
            self.settings.max_buffer_rows,
            self.settings.prediction_ratio,
            self.settings.prediction_window * 60.0,
            self.settings.prediction_min_samples,
        )
        self.refresher = Refresher(self.reader, self.writer, self.owner.engine, self._compiled, limits)
        return self

    def __exit__(self, *_: object) -> None:
        for conn in (self.control, self.reader, self.writer):
            conn.close()

    def loop(self) -> None:
        while not self.owner.stop.is_set():
            begun = time.monotonic()
            self.tick()
            if begun - self.tidied >= TIDY_SECONDS:
                self.tidy()
                self.tidied = begun
            self._sleep(begun)

    def tick(self) -> list[Outcome]:
        """One turn: every table that is due. Those that read one another move at one instant, the others in a wave."""
        with translated():
            tables = [t for t in catalog.load_stream_tables(self.control) if t.status in ("INITIALIZING", "ACTIVE")]
        for gone in set(self.owner.compiled) - {t.pgt_id for t in tables}:
            del self.owner.compiled[gone]
            self.refresher.costs.forget(gone)
        ready = [t for t in tables if self._compiled(t) is not None or self._prepare(t)]
        now = datetime.now(UTC)
        outcomes: list[Outcome] = []
        groups = together([t for t in ready if _wants_refresh(t, now)])
        alone = [group[0] for group in groups if len(group) == 1]
        if alone:
            outcomes += self._wave(alone)
        for group in groups:
            if len(group) > 1:
                outcomes += self._chain(group)
        return outcomes

    def _chain(self, tables: Sequence[StreamTable]) -> list[Outcome]:
        started = datetime.now(UTC)
        depths = levels(tables)
        outcomes, later = self.refresher.chain([[t.pgt_id for t in level] for level in depths])
        outcomes = self._handled(outcomes, started)
        for level in depths:  # what had to be loaded, and what reads that
            loaded = [t for t in level if t.pgt_id in later]
            if loaded:
                outcomes += self._wave(loaded)
        return outcomes

    def _wave(self, tables: Sequence[StreamTable]) -> list[Outcome]:
        started = datetime.now(UTC)
        return self._handled(self.refresher.wave([t.pgt_id for t in tables]), started)

    def _handled(self, outcomes: list[Outcome], started: datetime) -> list[Outcome]:
        again = []
        for outcome in outcomes:
            if outcome.action == PREPARE:
                self.owner.compiled.pop(outcome.table.pgt_id, None)
                # Altered just now; or, with a reason, a source changed under it: then it is loaded anew.
                if self._prepare(outcome.table, reload=outcome.reason):
                    again.append(outcome.table.pgt_id)
            elif outcome.error is not None:
                self._failed(outcome, started)
            elif outcome.action != NO_DATA:
                log.info(
                    "Refreshed",
                    extra=event(
                        REFRESH_DONE,
                        database=self.owner.name,
                        table=outcome.table.full_name,
                        action=outcome.action,
                        inserted=outcome.inserted,
                        deleted=outcome.deleted,
                        ms=round(sum(outcome.timings.values())),
                    ),
                )
                if outcome.reason == TRUNCATED:
                    # Or a column that only others read is gone, and the capture function can but say "changed".
                    self._prepare(outcome.table)
        if again:
            for outcome in self.refresher.wave(again):
                if outcome.error is not None:
                    self._failed(outcome, started)
        return outcomes

    def _prepare(self, table: StreamTable, *, reload: str | None = None) -> bool:
        started = datetime.now(UTC)
        if self.busy.get(table.pgt_id, 0.0) > time.monotonic():
            return False
        try:
            compiled = prepare(self.control, table, reload=reload)
        except PgtrickleError as error:
            if self.control.closed or self.control.broken:
                raise
            if isinstance(error, TransientError):
                self._postpone(table, error)
            else:
                self._failed(Outcome(table, "FULL", None, error), started)
            return False
        self.busy.pop(table.pgt_id, None)
        self.owner.compiled[table.pgt_id] = (_version(table), compiled)
        log.info(
            "Compiled",
            extra=event(PLAN_COMPILED, database=self.owner.name, table=table.full_name, full_because=compiled.reason),
        )
        return True

    def _postpone(self, table: StreamTable, error: TransientError) -> None:
        """A long transaction on a source is nobody's fault and may take hours: said, not counted."""
        self.busy[table.pgt_id] = time.monotonic() + BUSY_SECONDS
        with translated():
            self.control.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET last_error_message = %s "
                "WHERE pgt_id = %s AND last_error_message IS DISTINCT FROM %s",
                (error.one_line(), table.pgt_id, error.one_line()),
            )
        log.warning(
            "Not ready yet",
            extra=event(REFRESH_FAILED, database=self.owner.name, table=table.full_name, detail=error.one_line()),
        )

    def _compiled(self, table: StreamTable) -> Compiled | None:
        entry = self.owner.compiled.get(table.pgt_id)
        return entry[1] if entry is not None and entry[0] == _version(table) else None

    def _failed(self, outcome: Outcome, started: datetime) -> None:
        error = outcome.error
        if error is None:
            raise InvariantError("a failure without an error")
        if isinstance(error, FencedError):
            log.info(
                "Somebody else was first",
                extra=event(REFRESH_FENCED, database=self.owner.name, table=outcome.table.full_name),
            )
            return
        if isinstance(error, TransientError) and any(
            c.closed or c.broken for c in (self.control, self.reader, self.writer)
        ):
            raise error
        if isinstance(error, EngineLostError):
            log.warning(
                "Spark did not answer; the work is tried again", extra=event(REFRESH_FAILED, detail=error.message)
            )
            self.owner.stop.wait(0.5)
            return
        with translated():
            status = record_failure(
                self.control,
                outcome.table,
                error,
                action=outcome.action,
                started_at=started,
                max_consecutive=self.settings.max_consecutive_errors,
            )
        log.warning(
            "Refresh failed",
            extra=event(
                REFRESH_FAILED,
                database=self.owner.name,
                table=outcome.table.full_name,
                status=status,
                detail=error.one_line(),
            ),
        )

    def tidy(self) -> None:
        """Buffers behind their readers, capture that nobody needs, what broken loads left, old history."""
        with translated():
            trim_all(self.control)
            collect_garbage(self.control)
            sweep_stages(self.control)
            self.control.execute(statement("history_expire"), {"days": self.settings.history_retention_days})
        if self.indexing is None or not self.indexing.is_alive():
            self.indexing = threading.Thread(target=self._index, name=f"index {self.owner.name}", daemon=True)
            self.indexing.start()

    def _index(self) -> None:
        """On a connection of its own: to build an index beside writers means to wait for them."""
        try:
            with connect(self.owner.dsn, role="index", autocommit=True) as conn, translated():
                index_long_buffers(conn)
        except PgtrickleError as error:
            log.warning(
                "Buffers were not looked after",
                extra=event("capture.index_failed", database=self.owner.name, detail=error.one_line()),
            )

    def _sleep(self, begun: float) -> None:
        left = self.settings.scheduler_interval_ms / 1000 - (time.monotonic() - begun)
        if left > 0:
            with translated():
                wait_for_notify(self.control, left, self.owner.stop)


def _version(table: StreamTable) -> tuple[object, ...]:
    return (table.definition_version, table.refresh_mode, table.relid)


def _wants_refresh(table: StreamTable, now: datetime) -> bool:
    if table.refresh_requested:
        return True
    if not table.is_populated:
        return False
    # IMMEDIATE looks at every turn, whatever its schedule.
    is_now = table.needs_reinit or table.refresh_mode == "IMMEDIATE"
    return is_now or is_due(table.schedule, table.last_refresh_at, now)
