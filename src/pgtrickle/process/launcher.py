"""`pgtrickle run`: finds databases, starts and restarts schedulers, pipeline and Spark. It refreshes nothing itself."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.util
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from pgtrickle.db.discover import in_database, server_label
from pgtrickle.ipc.fleet_memory import MOST_DATABASES, FleetMemory, ProcessState
from pgtrickle.ipc.liveness import Heartbeat
from pgtrickle.ipc.registry import Registry
from pgtrickle.observe.database import DatabaseAddress
from pgtrickle.process import broker_main as brokerprocess
from pgtrickle.process import pipeline_main as pipelineprocess
from pgtrickle.process import scheduler_main as schedulerprocess
from pgtrickle.process import web_main as webprocess
from pgtrickle.process.broker_main import BrokerTask, registry_path
from pgtrickle.process.pipeline_main import PipelineTask, memory_path
from pgtrickle.process.scheduler_main import SchedulerTask
from pgtrickle.process.server_watch import ACTIVE, LOST, ManagedDatabaseInfo, ServerWatch
from pgtrickle.process.supervisor import SupervisedProcess
from pgtrickle.process.web_main import DatabaseList, WebTask
from pgtrickle.servers.server_process import private_directory
from pgtrickle.servers.spark_keeper import SparkSupervisor
from pgtrickle.settings import Settings, Sources
from pgtrickle.telemetry import CHILD_ENDED, NOTHING_INSTALLED, RUN_STARTED, RUN_STOPPED, UNINSTALLED, event, redact

log = logging.getLogger(__name__)

SUPERVISE_SECONDS = 0.5  # a child that ends is detected immediately
DRAIN_SECONDS = 12.0  # for schedulers, and for the pipeline
_AFTER_SOCKETS = -200  # exit priority; multiprocessing removes its own files at -100
# Modules that all schedulers need, loaded once and shared.
_PRELOAD = ["numpy", "psycopg", "cronsim", "pgtrickle.process.scheduler_main"]


def run_forever(
    settings: Settings,
    sources: Sources,
    servers: Sequence[str],
    listener: socket.socket | None = None,
    *,
    home: str | None = None,
) -> None:
    """Runs until SIGTERM or SIGINT; running refreshes may finish, a second signal ends the process immediately.
    `listener`: the socket of the web UI, if it is served. `home`: the database on the first server whose fleet
    settings apply, also when they change while this runs.

    Any process may be killed at any time: all persistent state is in the databases.
    """
    stop = threading.Event()

    def request_stop(*_: object) -> None:
        if stop.is_set():
            for child in multiprocessing.active_children():
                child.kill()
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)
    Launcher(settings, sources, servers, stop, listener, home).run()


class Launcher:
    """The main thread supervises the processes; a thread per server finds databases."""

    def __init__(
        self,
        settings: Settings,
        sources: Sources,
        servers: Sequence[str],
        stop: threading.Event,
        listener: socket.socket | None = None,
        home: str | None = None,
    ) -> None:
        _hide_main_module()
        self._home = in_database(servers[0], home) if home is not None else None
        self._settings = settings
        self._sources = sources
        self._stop = stop
        self._directory = private_directory("pgtrickle-run-", need_mib=10, has_sockets=True)
        _keep_sockets_in(self._directory)
        self._authkey = secrets.token_bytes(32)
        self._memory = FleetMemory(memory_path(self._directory), create=True)
        self._registry = Registry(registry_path(self._directory), create=True)
        self._spark = SparkSupervisor(settings)
        self._since = time.time()
        self._forkserver = multiprocessing.get_context("forkserver")
        self._forkserver.set_forkserver_preload(_PRELOAD)
        self._pipeline = SupervisedProcess(
            "pipeline", self._spawn_pipeline, Heartbeat(pipelineprocess.heartbeat_path(self._directory))
        )
        self._broker = SupervisedProcess("broker", self._spawn_broker)
        self._listener = listener
        self._web = SupervisedProcess("web", self._spawn_web)
        self._database_list = DatabaseList()
        self._servers = tuple(servers)
        self._watches = [ServerWatch(server, sources, stop, float(settings.standby_check_s)) for server in servers]
        self._schedulers: dict[
            tuple[str, int, str], tuple[int, SupervisedProcess]
        ] = {}  # server, oid, name -> slot, process
        self._leaving: list[tuple[int, SupervisedProcess, float]] = []  # slot, process, and the time when it is killed
        self._published: list[ProcessState] = []
        self._has_warned = False
        self._slots = 0

    def run(self) -> None:
        servers = ", ".join(redact(watch.server) for watch in self._watches)
        log.info("Started", extra=event(RUN_STARTED, server=servers))
        try:
            self._spark.start()
            for watch in self._watches:
                watch.start()
            while not self._stop.is_set():
                self._supervise()
                sentinels = [c.process.sentinel for c in self._children() if c.process is not None]
                if sentinels:
                    wait(sentinels, SUPERVISE_SECONDS)
                else:
                    self._stop.wait(SUPERVISE_SECONDS)
        finally:
            self._stop.set()
            self._end()
            log.info("Stopped", extra=event(RUN_STOPPED))

    def _children(self) -> list[SupervisedProcess]:
        return [
            self._pipeline,
            self._broker,
            self._web,
            *(child for _, child in self._schedulers.values()),
            *(child for _, child, _ in self._leaving),
        ]

    def _supervise(self) -> None:
        databases: dict[tuple[str, int, str], ManagedDatabaseInfo] = {}
        # Read before the databases: a watch that becomes active in between has databases that are missing below.
        all_scanned = all(watch.state == ACTIVE for watch in self._watches)
        for watch in self._watches:
            databases |= {(watch.server, database.oid, database.name): database for database in watch.databases}
        for key in [k for k in self._schedulers if k not in databases]:
            slot, child = self._schedulers.pop(key)
            child.request_stop()
            self._leaving.append((slot, child, time.monotonic() + DRAIN_SECONDS))
        self._end_leaving()
        for key, database in databases.items():
            if key not in self._schedulers and (free_slot := self._free_slot()) is not None:
                self._schedulers[key] = free_slot, SupervisedProcess("scheduler", self._spawner(free_slot, database))
                self._slots = max(self._slots, free_slot + 1)
                self._memory.write_slots(self._slots)
        if self._listener is not None:
            self._database_list.set(_addresses(self._watches))
            self._log_restart(self._web, self._web.keep(), None)
        if any(watch.state in (ACTIVE, LOST) for watch in self._watches):
            self._log_restart(self._pipeline, self._pipeline.keep(), None)
        # Started when a scheduler has registered a source (enable_refresh_broker); from then on it is kept running.
        if self._broker.since or self._registry.has_interests():
            self._log_restart(self._broker, self._broker.keep(), None)
        for key, (slot, child) in list(self._schedulers.items()):
            status = child.keep()
            if status is None:
                continue
            self._clear_slot(slot)
            if status in (schedulerprocess.NOT_INSTALLED, schedulerprocess.OTHER_VERSION):
                next(w for w in self._watches if w.server == key[0]).forget(key[1])
                del self._schedulers[key]
                if status == schedulerprocess.NOT_INSTALLED:
                    log.info(
                        "pgtrickle is no longer installed in a database",
                        extra=event(UNINSTALLED, database=key[2]),
                    )
            else:
                self._log_restart(child, status, key[2])
        if all_scanned and not databases and not any(watch.has_other_versions for watch in self._watches):
            self._warn_nothing_installed()
        self._publish()

    def _end_leaving(self) -> None:
        """Clears the slots of removed schedulers that have ended; kills those whose time is over."""
        remaining = []
        for slot, child, until in self._leaving:
            if child.has_ended() or time.monotonic() > until:
                child.end(0.0)
                self._clear_slot(slot)
            else:
                remaining.append((slot, child, until))
        self._leaving = remaining

    def _clear_slot(self, slot: int) -> None:
        self._memory.write_scheduler(slot, None)
        self._memory.write_slots(self._slots)

    def _log_restart(self, child: SupervisedProcess, status: int | None, database: str | None) -> None:
        if status is None or self._stop.is_set():
            return
        fields = {"kind": child.kind, "status": status, **({"database": database} if database else {})}
        log.warning("A process exited; restarting it", extra=event(CHILD_ENDED, **fields))

    def _free_slot(self) -> int | None:
        taken = {slot for slot, _ in self._schedulers.values()} | {slot for slot, _, _ in self._leaving}
        return next((slot for slot in range(MOST_DATABASES) if slot not in taken), None)

    def _spawner(self, slot: int, database: ManagedDatabaseInfo) -> schedulerprocess.Spawner:
        def spawn() -> BaseProcess:
            task = SchedulerTask(
                self._directory,
                self._authkey,
                self._sources,
                database.name,
                database.dsn,
                slot,
                self._servers,
                database.dsn == self._home,
            )
            return self._forkserver.Process(
                target=schedulerprocess.main, args=(task,), name=f"scheduler {database.name}"
            )

        return spawn

    def _spawn_pipeline(self) -> BaseProcess:
        task = PipelineTask(self._directory, self._authkey, self._settings, self._spark.address.follow(), self._servers)
        # Not forked: gRPC and the client of the JVM do not work after a fork.
        return multiprocessing.get_context("spawn").Process(target=pipelineprocess.main, args=(task,), name="pipeline")

    def _spawn_broker(self) -> BaseProcess:
        task = BrokerTask(self._directory, self._sources, self._servers)
        return self._forkserver.Process(target=brokerprocess.main, args=(task,), name="broker")

    def _spawn_web(self) -> BaseProcess:
        assert self._listener is not None
        task = WebTask(self._directory, self._settings, self._sources, self._listener, self._database_list.follow())
        return self._forkserver.Process(target=webprocess.main, args=(task,), name="web")

    def _warn_nothing_installed(self) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        log.warning(
            "pgtrickle is not installed in any database of this server; waiting for `pgtrickle install DSN`",
            extra=event(NOTHING_INSTALLED, server=", ".join(redact(w.server) for w in self._watches)),
        )

    def _publish(self) -> None:
        state = "ACTIVE" if any(w.state == ACTIVE for w in self._watches) else self._watches[0].state
        processes = [ProcessState("launcher", os.getpid(), state, self._since)]
        # Schedulers report their own state, except those that hang.
        hung = [child for _, child in self._schedulers.values() if child.state != "ACTIVE"]
        for child in (self._pipeline, self._broker, self._web, *hung):
            if child.pid is not None:
                processes.append(ProcessState(child.kind, child.pid, child.state, child.since))
        if self._spark.pid is not None:
            processes.append(ProcessState("spark", self._spark.pid, self._spark.state, self._since))
        if processes != self._published:
            self._memory.write_processes(processes)
            self._published = processes

    def _end(self) -> None:
        """Schedulers first: they withdraw queued units and wait for running ones."""
        deadline = time.monotonic() + DRAIN_SECONDS
        schedulers = [*(c for _, c in self._schedulers.values()), *(c for _, c, _ in self._leaving)]
        for child in schedulers:
            child.request_stop()
        for child in schedulers:
            child.end(deadline - time.monotonic())
        self._broker.end(0.0)  # it has no work to finish
        self._web.end(0.0)
        self._pipeline.request_stop()
        self._pipeline.end(DRAIN_SECONDS)
        self._spark.stop()
        for watch in self._watches:
            watch.join(2.0)


def _addresses(watches: Sequence[ServerWatch]) -> list[DatabaseAddress]:
    """The addresses of all databases. The label is the name, with the server if the fleet has several."""
    addresses = []
    for watch in watches:
        server = server_label(watch.server)
        for database in watch.databases:
            label = database.name if len(watches) == 1 else f"{database.name}@{server}"
            addresses.append(DatabaseAddress(label, database.name, server, database.dsn))
    return addresses


def _keep_sockets_in(directory: Path) -> None:
    """Places the socket of the fork server in our directory, which the next run deletes if this one is killed. At exit
    multiprocessing removes its socket, and a finalizer removes the directory after that."""
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        multiprocessing.util.get_temp_dir()  # created once; multiprocessing keeps its path
    finally:
        tempfile.tempdir = before
    remove = {"ignore_errors": True}
    multiprocessing.util.Finalize(None, shutil.rmtree, (directory,), remove, exitpriority=_AFTER_SOCKETS)


def _hide_main_module() -> None:
    """Prevents children from importing the main program, the command line, into their memory."""
    main = sys.modules["__main__"]
    main.__spec__ = None
    main.__file__ = None
