"""The pipeline's centre: units of all databases come in, leases go to workers, results go back.

Only its own thread touches its state; the threads that listen and those that work put messages into its inbox.
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

from pgtrickle.dispatch.client import Client, close_idle, limits_of
from pgtrickle.dispatch.lease import LeaseObserver, work
from pgtrickle.dispatch.listener import SchedulerListener
from pgtrickle.dispatch.managed_database import ManagedDatabase
from pgtrickle.dispatch.pool import Executor, ThreadPool
from pgtrickle.dispatch.pool_report import PoolReport
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
from pgtrickle.ipc.fleet_memory import FleetMemory, WorkerShare
from pgtrickle.ipc.fleet_memory import PoolStatus as PoolState
from pgtrickle.model.work import CANCELLED, QueuedUnit
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.settings import Settings

LOOK_SECONDS = 1.0
RESUME_SECONDS = 0.5  # for a token, after Spark: who hold them may be workers of a database that hangs
SLOW_SECONDS = 5.0  # a lease that takes longer does not keep databases waiting that have no worker
MOST_CANCELLED = 500  # jobs in a message: half of what a socket takes, so that to send it never waits


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
    """`run` is the pipeline's main thread: until `stop` is set and what runs has ended, or the time for that is over.
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
        engine.aside = self._tokens.lent
        self._clients: dict[str, Client] = {}
        self._by_channel: dict[int, Client] = {}  # by id of its channel
        self._limits: dict[str, WorkerLimit] = {}
        self._letters: set[str] = set()  # databases with something in their outbox
        self._running: Counter[str] = Counter()  # of those that have any
        self._leases: dict[int, float] = {}  # under way: since when
        self._held: Counter[tuple[str, int]] = Counter()  # database and stream table
        self._since = time.time()
        self._report = PoolReport(memory, self._state)

    def wake(self) -> None:
        self._inbox.put(None)

    def listen(self, listener: Listener) -> None:
        SchedulerListener(self.deliver, lambda replies: self._inbox.put(_Lost(replies)), self._stop).start(listener)

    def deliver(self, replies: ReplyChannel, message: FromScheduler) -> None:
        """A scheduler's message, from any thread. It is handled in the dispatcher's own."""
        self._inbox.put(_Arrived(replies, message))

    def step(self) -> None:
        """Whatever can be done now. With an executor in the calling thread, that is all there is to do."""
        while not self._inbox.empty():
            self._handle_waiting()
            self._send_replies()
            self._assign()

    def database(self, key: str) -> ManagedDatabase:
        """One whose scheduler has introduced it."""
        return self._clients[key].site

    def close(self) -> None:
        """For whoever used `step`: a process just ends."""
        for client in self._clients.values():
            client.site.close()
        self._origins.close()

    def run(self, drain_seconds: float) -> None:
        deadline: float | None = None
        looked = time.monotonic()
        while True:
            try:
                self._handle(self._inbox.get(timeout=self._report.seconds_left(LOOK_SECONDS)))
                self._handle_waiting()
            except queue.Empty:
                pass
            self._send_replies()
            if time.monotonic() - looked >= LOOK_SECONDS:  # also while messages keep coming
                close_idle(self._clients.values())
                self._tell_origins()
                looked = time.monotonic()
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
            case _Arrived(replies, Submit(jobs)):
                if client := self._client(replies):
                    self._put(client, jobs)
            case _Arrived(replies, Withdraw()):
                if client := self._client(replies):
                    self._cancel(client)
            case _Arrived(replies, ClearCaches()):
                if client := self._client(replies):
                    client.site.cache.clear()
            case _Arrived(replies, Define()):
                if client := self._client(replies):
                    # Not a worker's: it is asked for by people, and waits for databases that may not answer.
                    self._executor.start(client.site.define, "define")
            case _Lost(replies):
                if client := self._client(replies):
                    # Its units go with it: the next scheduler finds out anew what is due.
                    self._queue.drop(client.key)
                    self._forget(client)
                    client.site.close()
            case _Done(lease, finished):
                self._tokens.give_back()
                self._running -= Counter((lease.database,))  # which drops what is not above 0
                del self._leases[id(lease)]
                self._held -= _tables(lease)
                if (client := self._clients.get(lease.database)) is not None:
                    self._post(client, finished)
                    again, client.later = client.later, []
                    self._put(client, again)
            case None:
                pass

    def _put(self, client: Client, jobs: Sequence[QueuedUnit]) -> None:
        """A table is never with two workers, also when a new scheduler does not know what its predecessor began."""
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

    def _introduce(self, replies: ReplyChannel, hello: DatabaseSettings) -> None:
        known = self._clients.get(hello.key)
        limits = limits_of(hello.settings)
        if known is not None and known.replies is replies and known.site.dsn == hello.dsn:
            known.limits = self._limits[known.key] = limits
            known.site.configure(hello.settings)
            return
        if known is not None:  # a scheduler that died so recently that its end has not been changes_seen_at
            self._queue.drop(hello.key)
            self._forget(known)
            known.site.close()
        site = ManagedDatabase(hello.name, hello.dsn, hello.settings, self._engine, self._origins)
        self._know(Client(hello.key, site, replies, limits))

    def _cancel(self, client: Client) -> None:
        jobs, client.later = [*self._queue.drop(client.key), *client.later], []
        ended = [(job.job_id, CANCELLED, "the scheduler took it back", None) for job in jobs]
        for start in range(0, len(ended), MOST_CANCELLED):
            self._post(client, Finished(tuple(ended[start : start + MOST_CANCELLED]), (), datetime.now(UTC)))

    def _post(self, client: Client, finished: Finished) -> None:
        client.outbox.append(finished)
        self._letters.add(client.key)

    def _send_replies(self) -> None:
        """Never waits: a scheduler that hangs is nobody else's business."""
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
            # Who waits for Spark leaves room for others: the next job takes them all along.
            most = self._most + min(self._tokens.aside, max(0, MOST_BEGUN - self._most))
            if len(self._leases) >= most:
                # Somebody's query takes its time, or somebody's server hangs. Who has a worker gets no more for that.
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
            self._leases[id(lease)] = client.used
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
        """In its own thread: an origin may not answer."""
        self._origins.let_go()
        if self._origins.has_to_tell() and not self._is_telling:
            self._is_telling = True
            self._executor.start(self._tell_all, "tell")

    def _tell_all(self) -> None:
        try:
            self._origins.tell_all()
        finally:
            self._is_telling = False

    def _state(self) -> tuple[PoolState, list[WorkerShare]]:
        caches = [c.site.cache for c in self._clients.values()]
        # Who waits for Spark is busy, too: a pool that looks idle while units wait would be called too large.
        active = min(len(self._leases), self._most)
        pool = PoolState(
            os.getpid(),
            active,
            self._most,
            self._engine.jobs,
            sum(c.hits for c in caches),
            sum(c.misses for c in caches),
            sum(len(c) for c in caches),
            sum(c.evictions for c in caches),
            self._since,
        )
        return pool, [
            WorkerShare(
                c.key,
                c.site.name,
                self._running[c.key],
                cap(c.limits, active, self._most),
                self._queue.waiting(c.key) + len(c.later),
            )
            for c in self._clients.values()
        ]


def _tables(lease: Lease) -> Counter[tuple[str, int]]:
    return Counter((lease.database, pgt_id) for job in lease.jobs for pgt_id in job.unit.members)
