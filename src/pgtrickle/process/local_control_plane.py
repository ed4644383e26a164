"""The control plane of one database in the calling thread: its scheduler and a dispatcher, linked by a queue.

`pgtrickle refresh` uses it, and tests that decide when each tick happens. Due tables, units and the work of a
worker are determined by the same code as in `pgtrickle run`, where scheduler and dispatcher are processes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgtrickle.db.connect import connect
from pgtrickle.db.database_settings import find_pooler
from pgtrickle.db.version import require_version
from pgtrickle.dispatch.dispatcher import Dispatcher
from pgtrickle.dispatch.managed_database import ManagedDatabase
from pgtrickle.dispatch.pool import CallingThread
from pgtrickle.dispatch.worker import Worker
from pgtrickle.ipc.pipeline_link import LocalPipelineLink
from pgtrickle.maintain.tidy import Cleaner
from pgtrickle.model.reasons import Reason
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.origin.tracker import UnpolledOrigins
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh.job import Outcome
from pgtrickle.scheduler.tick import DatabaseScheduler
from pgtrickle.settings import Sources

# The caller decides when it works, so `enabled` is on; the calling thread is the only worker.
_FLAGS = {"enabled": True, "parallel_refresh_mode": "off"}


class LocalControlPlane:
    """Holds its connections until it is closed."""

    def __init__(
        self,
        name: str,
        dsn: str,
        engine: SparkEngine,
        sources: Sources,
        origins: OriginSessions | None = None,
    ) -> None:
        sources = replace(sources, flags={**sources.flags, **_FLAGS})
        self._results = _Results()
        self._executor = CallingThread()
        self._dispatcher = Dispatcher(
            sources.load().settings,
            engine,
            None,
            threading.Event(),
            origins,
            executor=self._executor,
            observer=self._results,
        )
        self._unpolled = UnpolledOrigins()
        self.control = connect(dsn, role="control", autocommit=True, pooler=find_pooler(dsn, sources))
        try:
            require_version(self.control)
            link = LocalPipelineLink(self._dispatcher.deliver)
            self._scheduler = DatabaseScheduler(self.control, name, dsn, sources, link, self._unpolled)
            self._scheduler.introduce()
            self._dispatcher.step()
            self._worker = self._open_worker()
        except BaseException:
            self.close()
            raise
        self._cleaner = Cleaner(name, dsn, self.control)

    def close(self) -> None:
        self._dispatcher.close()
        self.control.close()

    def tick(self, *, include_unchanged: bool = False, changes_seen_at: float = 0.0) -> list[Outcome]:
        """Refreshes everything that is due now, and the tables that waited for it. Raises the error of a lease that
        failed as a whole.

        `include_unchanged`: also tables without detected changes. `changes_seen_at`: when changes in other databases
        were detected, by the monotonic clock; 0: they are read again.
        """
        self._results.clear()
        self._unpolled.seen_at = changes_seen_at
        self._scheduler.expedite(include_unchanged=include_unchanged)
        self._dispatch()
        is_done = False
        while not is_done:
            leases = self._results.leases
            self._scheduler.tick()
            self._dispatch()
            self._scheduler.listen()
            is_done = leases == self._results.leases or not self._scheduler.has_released
        if self._results.errors:
            raise self._results.errors[0]
        return self._results.outcomes

    def tidy(self) -> None:
        self._scheduler.maintain_feeds()
        self._cleaner.tidy(self._scheduler.settings, self._scheduler.seen)

    def finish_tidying(self, seconds: float) -> None:
        """Waits for the thread that indexes and compacts buffers."""
        if self._cleaner.beside is not None:
            self._cleaner.beside.join(seconds)

    @property
    def held(self) -> Mapping[int, Reason]:
        """Stream tables that wait for a failed one that they read, and why."""
        return self._scheduler.held

    @property
    def database(self) -> ManagedDatabase:
        return self._dispatcher.database(self._scheduler.key)

    @property
    def worker(self) -> Worker:
        """The only worker, until its connection is lost."""
        if not self._worker.is_usable():
            self._worker = self._open_worker()
        return self._worker

    def _dispatch(self) -> None:
        """Executes submitted units, then definitions, whose tables are refreshed in the next tick."""
        self._dispatcher.step()
        self._executor.run_started()

    def _open_worker(self) -> Worker:
        worker = self.database.take()
        self.database.give_back(worker)
        return worker


class _Results:
    """The results of the leases of one tick."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.leases = 0
        self.outcomes: list[Outcome] = []
        self.errors: list[Exception] = []

    def refreshed(self, outcomes: Sequence[Outcome]) -> None:
        self.leases += 1
        self.outcomes += outcomes

    def failed(self, error: Exception) -> None:
        self.leases += 1
        self.errors.append(error)
