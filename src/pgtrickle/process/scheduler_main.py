"""The process of a scheduler: one database, one connection, one tick after the other. It neither compiles nor
computes."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from pgtrickle.db.connect import connect, pooler_of, translated
from pgtrickle.db.database_settings import find_pooler
from pgtrickle.db.discover import is_installed
from pgtrickle.db.install import SCHEDULER_LOCK
from pgtrickle.db.statements import statement
from pgtrickle.errors import PgtrickleError, TransientError
from pgtrickle.ipc.fleet_memory import FleetMemory, SchedulerState
from pgtrickle.ipc.pipeline_link import SocketPipelineLink
from pgtrickle.ipc.registry import Registry
from pgtrickle.ipc.wake_socket import WakeSocket
from pgtrickle.maintain.tidy import Cleaner
from pgtrickle.observe.status import StatusPublisher
from pgtrickle.origin.tracker import OriginChangeTracker
from pgtrickle.process.broker_main import registry_path
from pgtrickle.process.leader_lock import LeaderLock, new_holder
from pgtrickle.process.parent import end_with_parent, stop_on_signals
from pgtrickle.process.pipeline_main import memory_path, socket_path
from pgtrickle.scheduler.tick import DatabaseScheduler
from pgtrickle.settings import Sources
from pgtrickle.telemetry import DATABASE_BACK, DATABASE_LOST, LOOP_ENDED, event, set_up_logging

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)

Spawner = Callable[[], BaseProcess]

NOT_INSTALLED = 3  # exit status: pgtrickle is not, or no longer, installed in the database
LOCK_SECONDS = 1.0
BACKOFF_SECONDS = (0.25, 0.5, 1.0, 2.0, 5.0)
TIDY_SECONDS = 5.0
DRAIN_SECONDS = 10.0
CALM_SECONDS = 60.0
SHORTEST_SECONDS = 0.05  # minimum time between two ticks


@dataclass(frozen=True, slots=True)
class SchedulerTask:
    """Arguments from the launcher."""

    directory: Path
    authkey: bytes
    sources: Sources
    name: str
    dsn: str
    slot: int
    servers: tuple[str, ...] = ()


def main(task: SchedulerTask) -> None:
    settings = task.sources.load().settings
    set_up_logging(settings.log_level, settings.log_format)
    end_with_parent()
    sys.exit(SchedulerProcess(task).run())


class SchedulerProcess:
    """Connects, runs ticks, and reconnects when the connection was lost."""

    def __init__(self, task: SchedulerTask) -> None:
        self._task = task
        self._stop = threading.Event()
        self._bell, ring = os.pipe()
        os.set_blocking(ring, False)
        stop_on_signals(self._stop, lambda: _ring(ring))
        self._memory = FleetMemory(memory_path(task.directory))
        self._link = SocketPipelineLink(socket_path(task.directory), task.authkey, self._stop)
        self._woken = WakeSocket(task.directory, task.slot)
        registry = Registry(registry_path(task.directory))
        self._looks = OriginChangeTracker(
            task.dsn, task.servers, task.sources, registry=registry, bell=self._woken, slot=task.slot
        )
        self._since = time.time()
        self._holder = new_holder()

    def run(self) -> int:
        failures, lost = 0, -CALM_SECONDS
        while not self._stop.is_set():
            try:
                pooler = find_pooler(self._task.dsn, self._task.sources)
                with connect(self._task.dsn, role="scheduler", autocommit=True, pooler=pooler) as conn:
                    if failures:
                        log.info("Reconnected", extra=event(DATABASE_BACK, database=self._task.name))
                    failures = 0
                    if not self._attend(conn):
                        return NOT_INSTALLED
                self._stop.wait(LOCK_SECONDS)  # connection_pooler_mode has changed
            except TransientError as error:
                self._link.withdraw()  # queued units must not start without a scheduler
                # A session that is lost occasionally is no reason for a warning.
                is_first, lost = time.monotonic() - lost > CALM_SECONDS, time.monotonic()
                log.log(
                    logging.INFO if is_first else logging.WARNING,
                    "Session lost; reconnecting" if is_first else "Database is not reachable; retrying",
                    extra=event(DATABASE_LOST, database=self._task.name, detail=error.message),
                )
                self._tell("LOST", 0, 0, "")
                self._stop.wait(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
                failures += 1
            except PgtrickleError as error:
                if not is_installed(self._task.dsn):  # a statement failed because pgtrickle was uninstalled
                    return NOT_INSTALLED
                log.error(
                    "Scheduler ended",
                    extra=event(LOOP_ENDED, database=self._task.name, detail=error.one_line()),
                )
                return 1
        return 0

    def _attend(self, conn: Connection) -> bool:
        """One session, until connection_pooler_mode changes. False: pgtrickle is not installed in the database."""
        claim = LeaderLock(conn, "scheduler", SCHEDULER_LOCK, self._holder)
        with translated():
            while not claim.take():
                self._tell("WAITING", 0, 0, "")
                if self._stop.wait(LOCK_SECONDS):
                    return True
            row = conn.execute(
                statement("is_installed")
            ).fetchone()  # the previous holder of the lock may have uninstalled it
            if row is None or not row[0]:
                return False
        scheduling = DatabaseScheduler(
            conn, self._task.name, self._task.dsn, self._task.sources, self._link, self._looks
        )
        tidier = Cleaner(self._task.name, self._task.dsn, conn)
        publisher = StatusPublisher(self._memory)
        tidied = 0.0
        while not self._stop.is_set() and scheduling.settings.connection_pooler_mode == pooler_of(conn):
            begun = time.monotonic()
            claim.renew()
            scheduling.tick()
            if begun - tidied >= TIDY_SECONDS:
                tidier.tidy(scheduling.settings, scheduling.seen)
                scheduling.look_at_settings()
                tidied = begun
            self._tell(scheduling.state, scheduling.ticks, scheduling.tables, scheduling.key)
            publisher.publish(conn, scheduling)
            self._sleep(conn, scheduling, claim, begun)
        self._drain(scheduling, claim)
        claim.end()
        return True

    def _sleep(self, conn: Connection, scheduling: DatabaseScheduler, claim: LeaderLock, begun: float) -> None:
        """Waits for the next tick, a wake-up, a message from the pipeline, or the end."""
        deadline = begun + scheduling.settings.scheduler_interval_ms / 1000
        # A table whose schedule is due earlier does not wait for the tick.
        soon = time.monotonic() + max(SHORTEST_SECONDS, scheduling.next_moment() - time.time())
        deadline = min(deadline, soon)
        while not self._stop.is_set() and (left := deadline - time.monotonic()) > 0:
            sources: list[object] = [self._bell, conn.fileno(), self._woken.fileno()]
            if (pipe := self._link.connection) is not None:
                sources.append(pipe)
            ready = wait(sources, min(left, max(0.0, claim.seconds_left())))  # type: ignore[arg-type]
            claim.renew()
            if pipe is not None and pipe in ready and scheduling.listen():
                # Readers of the refreshed tables need not wait for the tick.
                deadline = min(deadline, max(begun, time.monotonic()) + SHORTEST_SECONDS)
            if self._woken.fileno() in ready:  # a source in another database has changed
                self._woken.heard()
                deadline = min(deadline, max(begun + SHORTEST_SECONDS, time.monotonic()))
            if conn.fileno() in ready:
                with translated():
                    woken = list(conn.notifies(timeout=0))
                if woken and scheduling.settings.event_driven_wake:
                    self._stop.wait(scheduling.settings.wake_debounce_ms / 1000)
                    with translated():
                        list(conn.notifies(timeout=0))
                    return

    def _drain(self, scheduling: DatabaseScheduler, claim: LeaderLock) -> None:
        """Withdraws queued units and waits a limited time for running ones."""
        deadline = time.monotonic() + DRAIN_SECONDS
        self._link.withdraw()
        while scheduling.in_flight and time.monotonic() < deadline and (pipe := self._link.connection) is not None:
            claim.renew()
            if wait([pipe], 0.2):
                scheduling.listen()
        scheduling.abandon("the scheduler was stopped")

    def _tell(self, state: str, ticks: int, tables: int, key: str) -> None:
        self._memory.write_scheduler(
            self._task.slot,
            SchedulerState(key, self._task.name, os.getpid(), state, self._since, time.time(), ticks, tables, 0),
        )


def _ring(pipe: int) -> None:
    try:
        os.write(pipe, b"!")
    except BlockingIOError:
        pass  # a wake-up is already pending
