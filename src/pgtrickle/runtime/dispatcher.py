"""The pipeline's centre: units of all databases come in, leases go to workers, results go back.

Only its own thread touches its state; the threads that listen and those that work put messages into its inbox.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection, Listener

from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.dispatch.pool import Pool
from pgtrickle.dispatch.queue import Lease, Queue
from pgtrickle.dispatch.quota import SERIAL, Limit, cap
from pgtrickle.errors import EngineLostError, FencedError, InvariantError, PgtrickleError, TransientError
from pgtrickle.memory.fleet import FleetMemory, Share
from pgtrickle.memory.fleet import Pool as PoolState
from pgtrickle.model.work import CANCELLED, PERMANENT, RETRYABLE, SUCCEEDED, Job
from pgtrickle.pipeline.spark import SparkEngine
from pgtrickle.runtime.channel import ClearCaches, Fared, Finished, FromScheduler, Hello, Submit, Withdraw
from pgtrickle.runtime.refresh import Outcome
from pgtrickle.runtime.site import Site
from pgtrickle.settings import Settings
from pgtrickle.telemetry import event

log = logging.getLogger(__name__)

MOST_IDLE = 16  # workers whose connections stay open without work, of all databases
IDLE_SECONDS = 30.0
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Arrived:
    connection: Connection
    message: FromScheduler


@dataclass(frozen=True, slots=True)
class _Lost:
    connection: Connection


@dataclass(frozen=True, slots=True)
class _Done:
    lease: Lease
    finished: Finished


@dataclass(slots=True)
class _Client:
    """A database, as long as its scheduler is connected."""

    key: str
    site: Site
    connection: Connection
    limits: Limit
    used: float = 0.0  # when a worker was last given to it


class Dispatcher:
    """Runs in the pipeline's main thread until `stop` is set and what runs has ended, or the time for that is over."""

    def __init__(self, settings: Settings, engine: SparkEngine, memory: FleetMemory, stop: threading.Event) -> None:
        self._settings = settings
        self._engine = engine
        self._memory = memory
        self._stop = stop
        self._inbox: queue.SimpleQueue[_Arrived | _Lost | _Done | None] = queue.SimpleQueue()
        self._queue = Queue()
        self._most = settings.max_dynamic_refresh_workers
        self._pool = Pool(settings.worker_pool_size, self._most)
        self._clients: dict[str, _Client] = {}
        self._running: Counter[str] = Counter()
        self._since = time.time()
        self._published: tuple[PoolState, list[Share]] | None = None

    def wake(self) -> None:
        self._inbox.put(None)

    def listen(self, listener: Listener) -> None:
        threading.Thread(target=self._accept, args=(listener,), name="accept", daemon=True).start()

    def run(self, drain_seconds: float) -> None:
        deadline: float | None = None
        while True:
            try:
                message = self._inbox.get(timeout=LOOK_SECONDS)
                self._handle(message)
                while not self._inbox.empty():
                    self._handle(self._inbox.get_nowait())
            except queue.Empty:
                self._close_idle()
            if self._stop.is_set():
                deadline = deadline or time.monotonic() + drain_seconds
                if not self._running.total() or time.monotonic() > deadline:
                    return
            else:
                self._assign()
            self._publish()

    # -- messages
    # ---------------------------------------------------------------------------------------------------------

    def _accept(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except (OSError, EOFError):  # the listener was closed, or a caller went away half-way
                if self._stop.wait(0.01):
                    return
                continue
            threading.Thread(target=self._receive, args=(connection,), name="receive", daemon=True).start()

    def _receive(self, connection: Connection) -> None:
        try:
            while True:
                self._inbox.put(_Arrived(connection, connection.recv()))
        except (OSError, EOFError):
            self._inbox.put(_Lost(connection))

    def _handle(self, message: _Arrived | _Lost | _Done | None) -> None:
        match message:
            case _Arrived(connection, Hello() as hello):
                self._introduce(connection, hello)
            case _Arrived(connection, Submit(jobs)):
                if client := self._client(connection):
                    for job in jobs:
                        self._queue.put(client.key, job)
            case _Arrived(connection, Withdraw()):
                if client := self._client(connection):
                    self._cancel(client)
            case _Arrived(connection, ClearCaches()):
                if client := self._client(connection):
                    client.site.cache.clear()
            case _Lost(connection):
                if client := self._client(connection):
                    # Its units go with it: the next scheduler finds out anew what is due.
                    self._queue.drop(client.key)
                    del self._clients[client.key]
                    client.site.close()
            case _Done(lease, finished):
                self._running[lease.database] -= 1
                if (client := self._clients.get(lease.database)) is not None:
                    _send(client.connection, finished)
            case None:
                pass

    def _client(self, connection: Connection) -> _Client | None:
        return next((c for c in self._clients.values() if c.connection is connection), None)

    def _introduce(self, connection: Connection, hello: Hello) -> None:
        known = self._clients.get(hello.key)
        limits = _limits(hello.settings)
        if known is not None and known.connection is connection and known.site.dsn == hello.dsn:
            known.limits = limits
            known.site.configure(hello.settings)
            return
        if known is not None:  # a scheduler that died so recently that its end has not been noticed
            self._queue.drop(hello.key)
            known.site.close()
        site = Site(hello.name, hello.dsn, hello.settings, self._engine)
        self._clients[hello.key] = _Client(hello.key, site, connection, limits)

    def _cancel(self, client: _Client) -> None:
        jobs = self._queue.drop(client.key)
        if jobs:
            ended = tuple((job.job_id, CANCELLED, "the scheduler took it back") for job in jobs)
            _send(client.connection, Finished(ended, (), datetime.now(UTC)))

    # -- work
    # -------------------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        limits = {key: client.limits for key, client in self._clients.items()}
        while self._running.total() < self._most:
            lease = self._queue.take(self._running, limits, self._most)
            if lease is None:
                return
            client = self._clients[lease.database]
            client.used = time.monotonic()
            self._running[lease.database] += 1
            self._pool.submit(self._task(client.site, lease))

    def _task(self, site: Site, lease: Lease) -> Callable[[], None]:
        def task() -> None:
            finished = work(site, lease.jobs)
            self._inbox.put(_Done(lease, finished))

        return task

    def _close_idle(self) -> None:
        """Connections that nobody has needed for a while, and those above the bound."""
        clients = sorted(self._clients.values(), key=lambda c: c.used, reverse=True)
        kept, now = 0, time.monotonic()
        for client in clients:
            kept += client.site.idle()
            if kept > MOST_IDLE or now - client.used > IDLE_SECONDS:
                client.site.shed()

    def _publish(self) -> None:
        caches = [c.site.cache for c in self._clients.values()]
        pool = PoolState(
            os.getpid(),
            self._running.total(),
            self._most,
            self._engine.jobs,
            sum(c.hits for c in caches),
            sum(c.misses for c in caches),
            sum(len(c) for c in caches),
            sum(c.evictions for c in caches),
            self._since,
        )
        active = self._running.total()
        shares = [
            Share(
                c.key, c.site.name, self._running[c.key], cap(c.limits, active, self._most), self._queue.waiting(c.key)
            )
            for c in self._clients.values()
        ]
        if self._published != (pool, shares):
            self._memory.write_pool(pool)
            self._memory.write_shares(shares)
            self._published = (pool, shares)


def work(site: Site, jobs: Sequence[Job]) -> Finished:
    """A lease, in a worker's thread."""
    try:
        worker = site.take()
    except PgtrickleError as error:
        return _all_failed(jobs, RETRYABLE, error.one_line())
    try:
        with translated():
            worker.writer.execute(
                statement("jobs_running"), {"ids": [j.job_id for j in jobs], "worker_pid": worker.backend_pid}
            )
        return _finished(jobs, worker.run([job.unit for job in jobs]))
    except TransientError as error:
        return _all_failed(jobs, RETRYABLE, error.one_line())
    except PgtrickleError as error:
        log.error("A lease failed", extra=event("runtime.lease_failed", database=site.name, detail=error.one_line()))
        return _all_failed(jobs, PERMANENT, error.one_line())
    except Exception as error:
        # A fault of ours must be seen, and must not take the other databases down.
        log.exception("A lease broke", extra=event("runtime.lease_broken", database=site.name))
        worker.close()
        return _all_failed(jobs, RETRYABLE, f"{type(error).__name__}: {error}")
    finally:
        site.give_back(worker)


def _finished(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> Finished:
    fared = {o.table.pgt_id: _fared(o) for o in outcomes}
    ended = []
    for job in jobs:
        own = [fared[i] for i in job.unit.members if i in fared]
        why = next((f.detail for branch in ("stop", "retry", "engine") for f in own if f.branch == branch), None)
        branches = {f.branch for f in own}
        status = PERMANENT if "stop" in branches else RETRYABLE if branches & {"retry", "engine"} else SUCCEEDED
        ended.append((job.job_id, status, why))
    return Finished(tuple(ended), tuple(fared.values()), datetime.now(UTC))


def _fared(outcome: Outcome) -> Fared:
    error = outcome.error
    if error is None or isinstance(error, FencedError):
        return Fared(outcome.table.pgt_id, outcome.action, "ok")
    branch = "retry" if isinstance(error, TransientError | InvariantError) else "stop"
    if isinstance(error, EngineLostError):
        branch = "engine"
    return Fared(outcome.table.pgt_id, outcome.action, branch, error.one_line())


def _all_failed(jobs: Sequence[Job], status: str, why: str) -> Finished:
    branch = "retry" if status == RETRYABLE else "stop"
    fared = tuple(Fared(i, "SKIP", branch, why) for job in jobs for i in job.unit.members)
    return Finished(tuple((job.job_id, status, why) for job in jobs), fared, datetime.now(UTC))


def _limits(settings: Settings) -> Limit:
    """Without parallel refreshes a database has one worker, whatever it was promised."""
    if settings.parallel_refresh_mode == "on":
        return Limit(settings.per_database_worker_quota, settings.max_concurrent_refreshes)
    return SERIAL


def _send(connection: Connection, message: Finished) -> None:
    try:
        connection.send(message)
    except (OSError, ValueError):
        pass  # its end is on the way to the inbox
