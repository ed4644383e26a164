"""One database as the pipeline knows it: how to reach it, its settings, its compiled tables, its idle workers."""

from __future__ import annotations

import logging
import threading

from pgtrickle.db.connect import OFF, PLANS_KEPT, TRANSACTION, Connection, connect, translated
from pgtrickle.define.cross_database import define_pending
from pgtrickle.define.foreign_tables import serve_shared
from pgtrickle.define.plan_requests import tell_plans
from pgtrickle.define.template_cache import TemplateCache
from pgtrickle.dispatch.worker import Worker
from pgtrickle.errors import PgtrickleError
from pgtrickle.mirror.manage import MirrorManager
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh.cost_history import CostHistoryCache
from pgtrickle.settings import Settings
from pgtrickle.telemetry import DEFINER_FAILED, event

log = logging.getLogger(__name__)

# Statements that a session keeps prepared. A stream table has a handful, and a wave has dozens of tables: with the
# driver's hundred each wave prepared nearly all of them anew.
MOST_PREPARED = 1_000
PREPARED_AFTER = 1  # execution: what is the same the second time is so with every refresh
# Conditions that find the touched rows bring tables of their own (ADR 10). One below geqo_threshold.
JOINS_PLANNED_TOGETHER = {"from_collapse_limit": "11", "join_collapse_limit": "11"}


class ManagedDatabase:
    """Workers of one database take their connections from here and give them back."""

    def __init__(
        self, name: str, dsn: str, settings: Settings, engine: SparkEngine, origins: OriginSessions | None = None
    ) -> None:
        self.name = name
        self.dsn = dsn
        self.settings = settings
        self.engine = engine
        self.cache = TemplateCache(settings.template_cache_max_entries)
        self.costs = CostHistoryCache()
        self._origins = origins or OriginSessions()
        self._mirroring = MirrorManager(dsn, engine, self.cache, self._origins, settings.max_buffer_rows)
        self._defining = threading.Lock()
        self.server_connections = 0  # that the server allows, as soon as there is one of ours
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def configure(self, settings: Settings) -> None:
        """What is under way ends as it began; the next worker follows the new settings."""
        self.settings = settings
        self.cache.resize(settings.template_cache_max_entries)
        self._mirroring.max_buffer_rows = settings.max_buffer_rows
        self.shed()

    def define(self) -> None:
        """Definitions that read other databases, plans that were asked for; who comes meanwhile leaves it to us."""
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
                "Definitions were not looked at",
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
                    return worker
                worker.close()
        return self._open()

    def give_back(self, worker: Worker) -> None:
        with self._lock:
            if worker.is_usable() and not self._is_closed:
                self._idle.append(worker)
                return
        worker.close()

    def idle(self) -> int:
        return len(self._idle)

    def shed(self) -> None:
        """Closes the idle connections: others need the room."""
        with self._lock:
            workers, self._idle = self._idle, []
        for worker in workers:
            worker.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self.shed()

    def _open(self) -> Worker:
        return self._connected(self.settings.connection_pooler_mode)

    def _connected(self, mode: str) -> Worker:
        cap = self.settings.delta_work_mem_cap_mb or self.settings.merge_work_mem_mb
        work_mem = f"{min(self.settings.merge_work_mem_mb, cap)}MB"
        pins = {"jit": "off", "work_mem": work_mem, **JOINS_PLANNED_TOGETHER}
        if mode == OFF:  # behind a pooler nothing is prepared
            pins |= PLANS_KEPT
        reader = connect(self.dsn, role="reader", autocommit=True, pooler=mode, pins=pins)
        try:
            writer = connect(self.dsn, role="writer", autocommit=True, pooler=mode, pins=pins)
        except BaseException:
            reader.close()
            raise
        beside = (lambda: self._connected(TRANSACTION)) if mode != TRANSACTION else None
        worker = Worker(
            self.name, reader, writer, self.engine, self.settings, self.cache, self.costs, self._mirroring, beside
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
