"""Receives units of all databases, assigns leases to workers, and sends results back.

Only its own thread uses its state; listener and worker threads put messages into its inbox.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Listener

from pgtrickle.define.template_cache import ProcessTemplates, TemplateCache
from pgtrickle.define.template_store import TemplateStore, store_root
from pgtrickle.dispatch.client import Client, close_idle, limits_of
from pgtrickle.dispatch.lease import LeaseObserver, work
from pgtrickle.dispatch.listener import SchedulerListener
from pgtrickle.dispatch.managed_database import ManagedDatabase
from pgtrickle.dispatch.pool import Executor, ThreadPool
from pgtrickle.dispatch.pool_report import PoolReport, PoolState
from pgtrickle.dispatch.queue import Lease, Queue
from pgtrickle.dispatch.quota import WorkerLimit, cap
from pgtrickle.dispatch.slots import MOST_BEGUN, WorkerSlots
from pgtrickle.ipc.channel import (
    ClearCaches,
    DatabaseSettings,
    Define,
    Finished,
    FromScheduler,
    ReplyChannel,
    Submit,
    Withdraw,
)
from pgtrickle.ipc.fleet_memory import FleetMemory, PoolStatus, WorkerShare
from pgtrickle.model.work import CANCELLED, QueuedUnit
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.settings import Settings

CHECK_SECONDS = 1.0
RESUME_SECONDS = 0.5  # for a slot, after Spark: workers of a hanging database may hold them
SLOW_SECONDS = 5.0  # a longer lease does not block databases without a worker
MOST_CANCELLED = 500  # jobs in a message: half of a socket's buffer, so that sending never blocks


@dataclass(frozen=True, slots=True)
class _Arrived:
    replies: ReplyChannel
    message: FromScheduler


@dataclass(frozen=True, slots=True)
class _Lost:
    replies: ReplyChannel


@dataclass(frozen=True, slots=True)
class _Done:
    lease: Lease
    finished: Finished


class Dispatcher:
    """`run` is the pipeline's main loop: until `stop` is set and running leases have ended, or the timeout is reached.
    `step` is for a scheduler in the same process, with an executor in the calling thread.
    """

    def __init__(
        self,
        settings: Settings,
        engine: SparkEngine,
        memory: FleetMemory | None,
        stop: threading.Event,
        origins: OriginSessions | None = None,
        *,
        executor: Executor | None = None,
        observer: LeaseObserver | None = None,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._stop = stop
        self._origins = origins or OriginSessions()
        self._is_telling = False
        self._inbox: queue.SimpleQueue[_Arrived | _Lost | _Done | None] = queue.SimpleQueue()
        self._queue = Queue()
        self._most = settings.max_dynamic_refresh_workers
        self._executor = executor or ThreadPool(min(settings.worker_pool_size, self._most))
        self._observer = observer
        self._tokens = WorkerSlots(self._most, RESUME_SECONDS, self.wake)
        engine.slot_lent = self._tokens.lent
        self._clients: dict[str, Client] = {}
        self._by_channel: dict[int, Client] = {}  # by id of its channel
        self._limits: dict[str, WorkerLimit] = {}
        self._letters: set[str] = set()  # databases with messages in their outbox
        self._running: Counter[str] = Counter()  # workers of each database with at least one
        self._behind: Counter[str] = Counter()  # units that wait in leases behind their first one
        self._leases: dict[int, float] = {}  # in progress: since when
        self._taken = 0  # leases since the start
        self._held: Counter[tuple[str, int]] = Counter()  # database and stream table
        self._templates = _process_templates(settings)
        self._since = time.time()
        self._report = PoolReport(memory, self._state)
        self.beat: Callable[[], None] = lambda: None  # called in each iteration of the loop, as a sign of life

    def wake(self) -> None:
        self._inbox.put(None)

    def listen(self, listener: Listener) -> None:
        SchedulerListener(self.deliver, lambda replies: self._inbox.put(_Lost(replies)), self._stop).start(listener)

    def deliver(self, replies: ReplyChannel, message: FromScheduler) -> None:
        """Accepts a scheduler's message from any thread; the dispatcher's thread handles it."""
        self._inbox.put(_Arrived(replies, message))

    def step(self) -> None:
        """Handles all messages and starts all leases. With an executor in the calling thread, all work is done then."""
        while not self._inbox.empty():
            self._handle_waiting()
            self._send_replies()
            self._assign()

    def database(self, key: str) -> ManagedDatabase:
        """A database that its scheduler has introduced."""
        return self._clients[key].site

    def close(self) -> None:
        """For callers of `step`; a process just ends."""
        for client in self._clients.values():
            client.site.close()
        self._origins.close()

    def run(self, drain_seconds: float) -> None:
        deadline: float | None = None
        checked_at = time.monotonic()
        while True:
            self.beat()
            try:
                self._handle(self._inbox.get(timeout=self._report.seconds_left(CHECK_SECONDS)))
                self._handle_waiting()
            except queue.Empty:
                pass
            self._send_replies()
            if time.monotonic() - checked_at >= CHECK_SECONDS:  # also while messages keep coming
                close_idle(self._clients.values())
                self._tell_origins()
                checked_at = time.monotonic()
            if self._stop.is_set():
                deadline = deadline or time.monotonic() + drain_seconds
                if not self._leases or time.monotonic() > deadline:
                    return
            else:
                self._assign()
            self._report.write()

    # -- messages
    # ---------------------------------------------------------------------------------------------------------

    def _handle_waiting(self) -> None:
        while not self._inbox.empty():
            self._handle(self._inbox.get_nowait())

    def _handle(self, message: _Arrived | _Lost | _Done | None) -> None:
        match message:
            case _Arrived(replies, DatabaseSettings() as hello):
                self._introduce(replies, hello)
            case _Arrived(replies, asked):
                if client := self._client(replies):
                    self._serve(client, asked)
            case _Lost(replies):
                if client := self._client(replies):
                    # Its units are dropped: the next scheduler determines again what is due.
                    self._queue.drop(client.key)
                    self._forget(client)
                    client.site.close()
            case _Done(lease, finished):
                self._tokens.give_back()
                self._running -= Counter((lease.database,))  # subtraction drops counts of 0
                self._behind -= Counter({lease.database: len(lease.jobs) - 1})
                del self._leases[id(lease)]
                self._held -= _tables(lease)
                if (client := self._clients.get(lease.database)) is not None:
                    known = [(r.pgt_id, r.share_ms) for r in finished.results if r.branch == "ok" and r.share_ms]
                    self._queue.note_durations(client.key, known)
                    self._post(client, finished)
                    again, client.later = client.later, []
                    self._put(client, again)
            case None:
                pass

    def _serve(self, client: Client, message: object) -> None:
        match message:
            case Submit(jobs):
                self._put(client, jobs)
            case Withdraw():
                self._cancel(client)
            case ClearCaches():
                client.site.cache.clear()
            case Define():
                # Not by a worker: a user requested it, and it may wait for databases that do not answer.
                self._executor.start(client.site.define, "define")

    def _put(self, client: Client, jobs: Sequence[QueuedUnit]) -> None:
        """A table never has two workers, even if a new scheduler does not know the leases of its predecessor."""
        for job in jobs:
            if any((client.key, pgt_id) in self._held for pgt_id in job.unit.members):
                client.later.append(job)
            else:
                self._queue.put(client.key, job)

    def _client(self, replies: ReplyChannel) -> Client | None:
        return self._by_channel.get(id(replies))

    def _know(self, client: Client) -> None:
        self._clients[client.key] = self._by_channel[id(client.replies)] = client
        self._limits[client.key] = client.limits

    def _forget(self, client: Client) -> None:
        del self._clients[client.key], self._by_channel[id(client.replies)], self._limits[client.key]
        self._letters.discard(client.key)
        self._queue.forget_durations(client.key)

    def _introduce(self, replies: ReplyChannel, hello: DatabaseSettings) -> None:
        if hello.is_home:
            self._resize(hello.settings)
        known = self._clients.get(hello.key)
        limits = limits_of(hello.settings)
        if known is not None and known.replies is replies and known.site.dsn == hello.dsn:
            known.limits = self._limits[known.key] = limits
            known.site.configure(hello.settings)
            return
        if known is not None:  # a scheduler that died just now, whose closed connection was not noticed yet
            self._queue.drop(hello.key)
            self._forget(known)
            known.site.close()
        cache = TemplateCache(self._templates, hello.key)
        site = ManagedDatabase(hello.name, hello.dsn, hello.settings, self._engine, self._origins, cache)
        self._know(Client(hello.key, site, replies, limits))

    def _resize(self, fleet: Settings) -> None:
        """Workers that are too many end their lease first."""
        self._most = fleet.max_dynamic_refresh_workers
        self._tokens.resize(self._most)
        self._executor.resize(min(fleet.worker_pool_size, self._most))
        self._templates.resize(fleet.template_cache_max_entries)

    def _cancel(self, client: Client) -> None:
        jobs, client.later = [*self._queue.drop(client.key), *client.later], []
        ended = [(job.job_id, CANCELLED, "the scheduler took it back", None) for job in jobs]
        for start in range(0, len(ended), MOST_CANCELLED):
            self._post(client, Finished(tuple(ended[start : start + MOST_CANCELLED]), (), datetime.now(UTC)))

    def _post(self, client: Client, finished: Finished) -> None:
        client.outbox.append(finished)
        self._letters.add(client.key)

    def _send_replies(self) -> None:
        """Never blocks, so that a hanging scheduler does not affect others."""
        for key in tuple(self._letters):
            client = self._clients[key]
            while client.outbox and client.replies.has_room():
                client.replies.send(client.outbox.popleft())
            if not client.outbox:
                self._letters.discard(key)

    # -- work
    # -------------------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        limits: Mapping[str, WorkerLimit] = self._limits
        while True:
            # Leases that wait for Spark make room for others, which join the next job.
            most = self._most + min(self._tokens.aside, max(0, MOST_BEGUN - self._most))
            if len(self._leases) >= most:
                # Some leases are slow or hang: databases that have a worker get no more.
                limits = {
                    **self._limits,
                    **{key: WorkerLimit(0, n) for key, n in self._running.items() if key in limits},
                }
                most += min(self._slow(), self._most)
            lease = self._queue.take(self._running, limits, most)
            if lease is None:
                return
            client = self._clients[lease.database]
            client.used = time.monotonic()
            self._tokens.take()
            self._running[lease.database] += 1
            self._behind[lease.database] += len(lease.jobs) - 1
            self._leases[id(lease)] = client.used
            self._taken += 1
            self._held += _tables(lease)
            self._executor.submit(self._task(client.site, lease))

    def _slow(self) -> int:
        now = time.monotonic()
        return sum(now - since > SLOW_SECONDS for since in self._leases.values())

    def _task(self, site: ManagedDatabase, lease: Lease) -> Callable[[], None]:
        def task() -> None:
            finished = work(site, lease.jobs, self._observer)
            self._inbox.put(_Done(lease, finished))

        return task

    def _tell_origins(self) -> None:
        """Runs in its own thread because an origin may hang."""
        self._origins.let_go()
        if self._origins.has_to_tell() and not self._is_telling:
            self._is_telling = True
            self._executor.start(self._tell_all, "tell")

    def _tell_all(self) -> None:
        try:
            self._origins.tell_all()
        finally:
            self._is_telling = False

    def _state(self) -> PoolState:
        templates, store = self._templates, self._templates.store
        # Leases that wait for Spark count as busy: otherwise a pool would look idle while units wait.
        active = min(len(self._leases), self._most)
        pool = PoolStatus(
            os.getpid(),
            active,
            self._most,
            self._engine.jobs,
            self._taken,
            templates.hits,
            templates.misses,
            len(templates),
            templates.evictions,
            self._since,
            templates.most,
            *((store.hits, store.misses, store.entries, store.evictions) if store is not None else (0, 0, 0, 0)),
        )
        present = store.digests() if store is not None else frozenset()
        shares = [
            WorkerShare(
                c.key,
                c.site.name,
                self._running[c.key],
                c.limits.quota,
                self._queue.waiting(c.key) + len(c.later) + self._behind[c.key],
                cap(c.limits, active, self._most),
                len(c.site.cache),
                c.site.cache.stored(present),
            )
            for c in self._clients.values()
        ]
        return PoolState(pool, shares, [worker for c in self._clients.values() for worker in c.site.workers()])


def _process_templates(settings: Settings) -> ProcessTemplates:
    root = store_root(settings.template_cache_dir, os.environ)
    return ProcessTemplates(
        settings.template_cache_max_entries, TemplateStore(root, settings.template_cache_max_mb << 20)
    )


def _tables(lease: Lease) -> Counter[tuple[str, int]]:
    return Counter((lease.database, pgt_id) for job in lease.jobs for pgt_id in job.unit.members)
