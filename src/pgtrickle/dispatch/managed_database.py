"""One database of the pipeline: its DSN, its settings, its compiled tables, its idle workers."""

from __future__ import annotations

import logging
import os
import threading
import time

from pgtrickle.db.connect import OFF, PLANS_KEPT, TRANSACTION, Connection, connect, translated
from pgtrickle.db.version import require_version
from pgtrickle.define.cross_database import define_pending
from pgtrickle.define.foreign_tables import serve_shared
from pgtrickle.define.template_cache import ProcessTemplates, TemplateCache
from pgtrickle.dispatch.remote_tables import RemoteTables
from pgtrickle.dispatch.replica_advancer import ReplicaAdvancer
from pgtrickle.dispatch.worker import Worker
from pgtrickle.errors import PgtrickleError
from pgtrickle.ipc.fleet_memory import WorkerState
from pgtrickle.mirror.manage import MirrorManager
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh.cost_history import CostHistoryCache
from pgtrickle.refresh.plan_requests import tell_plans
from pgtrickle.replica import ReplicaStore
from pgtrickle.replica.roots import root_of
from pgtrickle.settings import Settings
from pgtrickle.telemetry import DEFINER_FAILED, event

log = logging.getLogger(__name__)

# Prepared statements per session. A stream table has a handful, and a wave has dozens of tables: with the driver's
# default of 100, each wave prepared nearly all of them again.
MOST_PREPARED = 1_000
# The reader of a refresh holds its locks while the writer waits for one. A transaction that has locked the stream table
# and requests a lock on a source waits for both, and PostgreSQL does not know that these sessions belong together. The
# refresh gives way.
_LOCKS = {"lock_timeout": "20s"}
PREPARED_AFTER = 1  # execution: a statement that is executed twice is executed by every refresh
# Conditions that find affected rows add tables to a join (ADR 10). One below geqo_threshold.
JOINS_PLANNED_TOGETHER = {"from_collapse_limit": "11", "join_collapse_limit": "11"}


def session_pins(settings: Settings) -> dict[str, str]:
    """Settings of PostgreSQL for sessions that refresh."""
    cap = settings.delta_work_mem_cap_mb or settings.merge_work_mem_mb
    return {"jit": "off", "work_mem": f"{min(settings.merge_work_mem_mb, cap)}MB", **JOINS_PLANNED_TOGETHER}


class ManagedDatabase:
    """Workers of one database take their connections from here and give them back."""

    def __init__(
        self,
        name: str,
        dsn: str,
        settings: Settings,
        engine: SparkEngine,
        origins: OriginSessions | None = None,
        cache: TemplateCache | None = None,
    ) -> None:
        self.name = name
        self.dsn = dsn
        self.settings = settings
        self.engine = engine
        if cache is None:
            cache = TemplateCache(ProcessTemplates(settings.template_cache_max_entries), name)
        self.cache = cache
        self.costs = CostHistoryCache()
        self._origins = origins or OriginSessions()
        self._mirroring = MirrorManager(dsn, engine, self.cache, self._origins, settings.max_buffer_rows)
        self._remotes = RemoteTables(dsn, self._origins)
        self._defining = threading.Lock()
        self._advancer = ReplicaAdvancer(name, dsn)
        self.server_connections = 0  # max_connections of the server, after the first connection
        self._idle: list[Worker] = []
        self._since: dict[Worker, tuple[str, float]] = {}  # what each worker with connections does, and since when
        self._lock = threading.Lock()
        self._is_closed = False

    def configure(self, settings: Settings) -> None:
        """Running leases keep the old settings; the next worker uses the new ones."""
        self.settings = settings
        self._mirroring.max_buffer_rows = settings.max_buffer_rows
        self.shed()

    def define(self) -> None:
        """Processes definitions over other databases and requested plans; concurrent calls return at once."""
        if not self._defining.acquire(blocking=False):
            return
        try:
            worker = self.take()
            try:
                self.define_with(worker.writer)
            finally:
                self.give_back(worker)
        except PgtrickleError as error:
            log.warning(
                "Pending definitions were not processed",
                extra=event(DEFINER_FAILED, database=self.name, detail=error.one_line()),
            )
        finally:
            self._defining.release()

    def define_with(self, home: Connection) -> None:
        define_pending(home, self.dsn, self._origins)
        tell_plans(home, self.dsn, self._origins)
        serve_shared(home, self.dsn, self._origins)
        self._mirroring.retire(home)

    def take(self) -> Worker:
        """An idle worker's connections, or new ones."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.is_usable():
                    self._since[worker] = "ACTIVE", time.time()
                    return worker
                self._close(worker)
        worker = self._open()
        with self._lock:
            self._since[worker] = "ACTIVE", time.time()
        return worker

    def give_back(self, worker: Worker) -> None:
        if worker.replicas is not None and worker.is_usable() and not self._is_closed:
            try:
                self._advancer.advance_due(worker.writer, worker.replicas)
            except PgtrickleError:
                worker.close()
        with self._lock:
            if worker.is_usable() and not self._is_closed:
                self._idle.append(worker)
                self._since[worker] = "IDLE", time.time()
                return
            self._close(worker)

    def _close(self, worker: Worker) -> None:
        self._since.pop(worker, None)
        worker.close()

    def workers(self) -> list[WorkerState]:
        """Those with connections, oldest first."""
        with self._lock:
            workers = list(self._since.items())
        return [WorkerState(self.name, worker.pid or 0, state, since) for worker, (state, since) in workers]

    def idle(self) -> int:
        return len(self._idle)

    def shed(self) -> None:
        """Closes idle connections, because others need them."""
        with self._lock:
            workers, self._idle = self._idle, []
            for worker in workers:
                self._close(worker)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self.shed()
        self.cache.forget()

    def _open(self) -> Worker:
        return self._connected(self.settings.connection_pooler_mode)

    def _connected(self, mode: str) -> Worker:
        pins = session_pins(self.settings) | _LOCKS
        if mode == OFF:  # behind a pooler there are no prepared statements
            pins |= PLANS_KEPT
        reader = connect(self.dsn, role="reader", autocommit=True, pooler=mode, pins=pins)
        try:
            require_version(reader)  # an upgrade terminates existing sessions
            writer = connect(self.dsn, role="writer", autocommit=True, pooler=mode, pins=pins)
        except BaseException:
            reader.close()
            raise
        make_pooler_worker = (lambda: self._connected(TRANSACTION)) if mode != TRANSACTION else None
        worker = Worker(
            self.name,
            reader,
            writer,
            self.engine,
            self.settings,
            self.cache,
            self.costs,
            self._mirroring,
            self._remotes,
            make_pooler_worker,
            ReplicaStore(root_of(self.settings.replica_root, os.environ), self.engine),
        )
        try:
            self._ask(worker)
        except BaseException:
            worker.close()
            raise
        for conn in (reader, writer):
            conn.prepared_max = MOST_PREPARED
            if conn.prepare_threshold is not None:
                conn.prepare_threshold = PREPARED_AFTER
        return worker

    def _ask(self, worker: Worker) -> None:
        if not self.server_connections:
            with translated():
                row = worker.reader.execute("SELECT current_setting('max_connections')::int").fetchone()
            self.server_connections = row[0] if row else 0
