"""The control plane of one database in the calling thread: its scheduler and a dispatcher, linked by a queue.

`pgtrickle refresh` uses it, and tests that decide when each tick happens. What is due, which units it makes and what a
worker does with them is the same code as in `pgtrickle run`, where scheduler and dispatcher are processes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgtrickle.db.connect import connect
from pgtrickle.db.database_settings import find_pooler
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

# It works whenever it is called, and one thread has one worker.
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
            link = LocalPipelineLink(self._dispatcher.deliver)
            self._scheduler = DatabaseScheduler(self.control, name, dsn, sources, link, self._unpolled)
            self._scheduler.introduce()
            self._dispatcher.step()
            self._worker = self._opened()
        except BaseException:
            self.close()
            raise
        self._cleaner = Cleaner(name, dsn, self.control)

    def close(self) -> None:
        self._dispatcher.close()
        self.control.close()

    def tick(self, *, include_unchanged: bool = False, changes_seen_at: float = 0.0) -> list[Outcome]:
        """Everything that is due now, to the end, with what waited for it. Raises what a worker failed with as a whole.

        `include_unchanged`: also what has no changes that were detected. `changes_seen_at`: when changes in other
        databases became known, by the monotonic clock; 0: they are read anew.
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
        """Buffers are indexed and netted out in a thread."""
        if self._cleaner.beside is not None:
            self._cleaner.beside.join(seconds)

    @property
    def held(self) -> Mapping[int, Reason]:
        """Stream tables that wait because one that they read has failed, and why."""
        return self._scheduler.held

    @property
    def database(self) -> ManagedDatabase:
        return self._dispatcher.database(self._scheduler.key)

    @property
    def worker(self) -> Worker:
        """The one that does all the work, until its connection is lost."""
        if not self._worker.is_usable():
            self._worker = self._opened()
        return self._worker

    def _dispatch(self) -> None:
        """Units that were submitted, and then definitions, whose tables are for the next tick."""
        self._dispatcher.step()
        self._executor.run_started()

    def _opened(self) -> Worker:
        worker = self.database.take()
        self.database.give_back(worker)
        return worker


class _Results:
    """Of the leases of one tick."""

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
