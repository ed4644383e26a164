"""The process of a scheduler: one database, one connection, one tick after the other. It compiles no queries and
refreshes nothing."""

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

from pgtrickle.capture.trigger import WAKE_CHANNEL
from pgtrickle.db.connect import TRANSACTION, connect, pooler_of, translated
from pgtrickle.db.database_settings import find_pooler
from pgtrickle.db.discover import is_installed
from pgtrickle.db.install import SCHEDULER_LOCK
from pgtrickle.db.statements import statement
from pgtrickle.db.version import require_version
from pgtrickle.errors import CatalogVersionError, PgtrickleError, TransientError
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
from pgtrickle.process.tick_pace import SHORTEST_SECONDS, deadline_after_results, debounce_left, debounce_time
from pgtrickle.process.writer_signal import WriterSignal
from pgtrickle.scheduler.tick import DatabaseScheduler
from pgtrickle.settings import Sources
from pgtrickle.telemetry import DATABASE_BACK, DATABASE_LOST, LOOP_ENDED, event, set_up_logging

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)

Spawner = Callable[[], BaseProcess]

NOT_INSTALLED = 3  # exit status: pgtrickle is not, or no longer, installed in the database
OTHER_VERSION = 4  # exit status: the catalog has another version than this program needs
LOCK_SECONDS = 1.0
BACKOFF_SECONDS = (0.25, 0.5, 1.0, 2.0, 5.0)
TIDY_SECONDS = 5.0
DRAIN_SECONDS = 10.0
CALM_SECONDS = 60.0


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
    is_home: bool = False  # the database that --server names


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
        self._signal_pipe, signal_end = os.pipe()
        os.set_blocking(signal_end, False)
        stop_on_signals(self._stop, lambda: _write_byte(signal_end))
        self._memory = FleetMemory(memory_path(task.directory))
        self._link = SocketPipelineLink(socket_path(task.directory), task.authkey, self._stop)
        self._wake_socket = WakeSocket(task.directory, task.slot)
        registry = Registry(registry_path(task.directory))
        self._origin_changes = OriginChangeTracker(
            task.dsn, task.servers, task.sources, registry=registry, wake_socket=self._wake_socket, slot=task.slot
        )
        self._since = time.time()
        self._holder = new_holder()

    def run(self) -> int:
        failures, lost_at = 0, -CALM_SECONDS
        while not self._stop.is_set():
            try:
                pooler = find_pooler(self._task.dsn, self._task.sources)
                with connect(self._task.dsn, role="scheduler", autocommit=True, pooler=pooler) as conn:
                    if failures:
                        log.info("Reconnected", extra=event(DATABASE_BACK, database=self._task.name))
                    failures = 0
                    if not self._run_session(conn):
                        return NOT_INSTALLED
                self._stop.wait(LOCK_SECONDS)  # connection_pooler_mode has changed
            except TransientError as error:
                self._link.withdraw()  # queued units must not start without a scheduler
                # The occasional loss of a session does not justify a warning.
                is_first, lost_at = time.monotonic() - lost_at > CALM_SECONDS, time.monotonic()
                log.log(
                    logging.INFO if is_first else logging.WARNING,
                    "Session lost; reconnecting" if is_first else "Database is not reachable; retrying",
                    extra=event(DATABASE_LOST, database=self._task.name, detail=error.message),
                )
                self._write_state("LOST", 0, 0, "")
                self._stop.wait(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
                failures += 1
            except CatalogVersionError:  # the launcher checks it again and reports it
                self._link.withdraw()
                return OTHER_VERSION
            except PgtrickleError as error:
                if not is_installed(self._task.dsn):  # a statement failed because pgtrickle was uninstalled
                    return NOT_INSTALLED
                log.error(
                    "Scheduler ended",
                    extra=event(LOOP_ENDED, database=self._task.name, detail=error.one_line()),
                )
                return 1
        return 0

    def _run_session(self, conn: Connection) -> bool:
        """One session, until connection_pooler_mode changes. False: pgtrickle is not installed in the database."""
        lock = LeaderLock(conn, "scheduler", SCHEDULER_LOCK, self._holder)
        require_version(conn)  # before anything is written, for example a lease
        with translated():
            while not lock.take():
                self._write_state("WAITING", 0, 0, "")
                if self._stop.wait(LOCK_SECONDS):
                    return True
            row = conn.execute(
                statement("is_installed")
            ).fetchone()  # the previous holder of the lock may have uninstalled it
            if row is None or not row[0]:
                return False
        require_version(conn)  # or have upgraded it
        scheduling = DatabaseScheduler(
            conn,
            self._task.name,
            self._task.dsn,
            self._task.sources,
            self._link,
            self._origin_changes,
            is_home=self._task.is_home,
        )
        cleaner = Cleaner(self._task.name, self._task.dsn, conn)
        publisher = StatusPublisher(self._memory)
        signal = WriterSignal(conn)
        tidied = 0.0
        while not self._stop.is_set() and scheduling.settings.connection_pooler_mode == pooler_of(conn):
            begun = time.monotonic()
            lock.renew()
            signal.acquire(scheduling)
            scheduling.tick()
            if scheduling.has_found:
                signal.note_changes()
            if begun - tidied >= TIDY_SECONDS:
                cleaner.tidy(scheduling.settings, scheduling.seen)
                scheduling.reload_settings()
                tidied = begun
            self._write_state(scheduling.state, scheduling.ticks, scheduling.tables, scheduling.key)
            publisher.publish(conn, scheduling)
            self._sleep(conn, scheduling, lock, signal, begun)
        self._drain(scheduling, lock)
        lock.end()
        return True

    def _sleep(
        self, conn: Connection, scheduling: DatabaseScheduler, lock: LeaderLock, signal: WriterSignal, begun: float
    ) -> None:
        """Waits for the next tick, a wake-up, a message from the pipeline, or the end."""
        deadline = begun + scheduling.settings.scheduler_interval_ms / 1000
        # A table whose schedule is due earlier does not wait for the tick.
        due_at = time.monotonic() + max(SHORTEST_SECONDS, scheduling.next_due_time() - time.time())
        deadline = min(deadline, due_at)
        is_changed = is_notified = False
        while not self._stop.is_set():
            # Includes notifications that arrived during statements: the driver has them, the socket does not.
            channels = self._notified(conn, scheduling)
            is_changed |= WAKE_CHANNEL in channels
            is_notified |= bool(channels - {WAKE_CHANNEL})
            now, debounce = time.monotonic(), _debounce(scheduling)
            timeout = min(deadline, begun + debounce if is_changed else deadline) - now
            if is_notified:
                timeout = min(timeout, debounce_left(begun, now, scheduling.settings.wake_debounce_ms / 1000))
            if timeout <= 0:
                return
            if is_changed or is_notified:
                signal.release()  # the tick handles further notifications, too
            elif (poll_in := max(signal.seconds_left(scheduling), debounce_left(begun, now, debounce))) <= 0:
                return
            else:
                timeout = min(timeout, poll_in)
            sources: list[object] = [self._signal_pipe, conn.fileno(), self._wake_socket.fileno()]
            if (pipe := self._link.connection) is not None:
                sources.append(pipe)
            ready = wait(sources, min(timeout, max(0.0, lock.seconds_left())))  # type: ignore[arg-type]
            lock.renew()
            if pipe is not None and pipe in ready:
                # Readers of the refreshed tables, and changes that arrived meanwhile, do not wait for the regular tick.
                has_refreshed, is_due = scheduling.listen(), scheduling.has_due
                debounce = _debounce(scheduling)
                deadline = deadline_after_results(
                    deadline, begun, time.monotonic(), debounce, is_due=is_due, is_changed=has_refreshed
                )
            if self._wake_socket.fileno() in ready:  # a source in another database has changed
                self._wake_socket.drain()
                earliest = begun + max(SHORTEST_SECONDS, _debounce(scheduling))
                deadline = min(deadline, max(earliest, time.monotonic()))

    def _notified(self, conn: Connection, scheduling: DatabaseScheduler) -> set[str]:
        """The channels of received notifications; each of them requests a tick."""
        if pooler_of(conn) == TRANSACTION:
            return set()
        with translated():
            channels = {notification.channel for notification in conn.notifies(timeout=0)}
        return channels if scheduling.settings.event_driven_wake else set()

    def _drain(self, scheduling: DatabaseScheduler, lock: LeaderLock) -> None:
        """Withdraws queued units and waits a limited time for running ones."""
        deadline = time.monotonic() + DRAIN_SECONDS
        self._link.withdraw()
        while scheduling.in_flight and time.monotonic() < deadline and (pipe := self._link.connection) is not None:
            lock.renew()
            if wait([pipe], 0.2):
                scheduling.listen()
        scheduling.abandon("the scheduler was stopped")

    def _write_state(self, state: str, ticks: int, tables: int, key: str) -> None:
        self._memory.write_scheduler(
            self._task.slot,
            SchedulerState(key, self._task.name, os.getpid(), state, self._since, time.time(), ticks, tables, 0),
        )


def _debounce(scheduling: DatabaseScheduler) -> float:
    return debounce_time(scheduling.settings.wake_debounce_ms / 1000, in_flight=scheduling.in_flight)


def _write_byte(pipe: int) -> None:
    try:
        os.write(pipe, b"!")
    except BlockingIOError:
        pass  # a wake-up is already pending
