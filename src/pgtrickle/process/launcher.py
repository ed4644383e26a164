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

LOOK_SECONDS = 0.5  # a child that ends is detected immediately
DRAIN_SECONDS = 12.0  # for schedulers, and for the pipeline
# Modules that all schedulers need, loaded once and shared.
_AFTER_SOCKETS = -200  # multiprocessing removes its own at -100
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
    `listener`: where the web UI is served, if it is. `home`: the database on the first server whose settings of the
    fleet are followed while it runs.

    Any process may be killed at any time: all persistent state is in the databases.
    """
    stop = threading.Event()

    def ask(*_: object) -> None:
        if stop.is_set():
            for child in multiprocessing.active_children():
                child.kill()
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
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
        self._small = multiprocessing.get_context("forkserver")
        self._small.set_forkserver_preload(_PRELOAD)
        self._pipeline = SupervisedProcess(
            "pipeline", self._spawn_pipeline, Heartbeat(pipelineprocess.heartbeat_path(self._directory))
        )
        self._broker = SupervisedProcess("broker", self._spawn_broker)
        self._listener = listener
        self._web = SupervisedProcess("web", self._spawn_web)
        self._databases = DatabaseList()
        self._servers = tuple(servers)
        self._watches = [ServerWatch(server, sources, stop, float(settings.standby_check_s)) for server in servers]
        self._schedulers: dict[
            tuple[str, int, str], tuple[int, SupervisedProcess]
        ] = {}  # server, oid, name -> slot, process
        self._leaving: list[
            tuple[int, SupervisedProcess, float]
        ] = []  # slot, process, and until when it may end by itself
        self._published: list[ProcessState] = []
        self._is_told = False
        self._slots = 0

    def run(self) -> None:
        servers = ", ".join(redact(watch.server) for watch in self._watches)
        log.info("Started", extra=event(RUN_STARTED, server=servers))
        try:
            self._spark.start()
            for watch in self._watches:
                watch.start()
            while not self._stop.is_set():
                self._look()
                sentinels = [c.process.sentinel for c in self._children() if c.process is not None]
                if sentinels:
                    wait(sentinels, LOOK_SECONDS)
                else:
                    self._stop.wait(LOOK_SECONDS)
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

    def _look(self) -> None:
        wanted: dict[tuple[str, int, str], ManagedDatabaseInfo] = {}
        # Before the databases: a watch that becomes active in the meantime has found some that are not in `wanted`.
        have_looked = all(watch.state == ACTIVE for watch in self._watches)
        for watch in self._watches:
            wanted |= {(watch.server, found.oid, found.name): found for found in watch.databases}
        for key in [k for k in self._schedulers if k not in wanted]:
            slot, child = self._schedulers.pop(key)
            child.ask_to_stop()
            self._leaving.append((slot, child, time.monotonic() + DRAIN_SECONDS))
        self._see_off()
        for key, found in wanted.items():
            if key not in self._schedulers and (place := self._free_slot()) is not None:
                self._schedulers[key] = place, SupervisedProcess("scheduler", self._spawner(place, found))
                self._slots = max(self._slots, place + 1)
                self._memory.write_slots(self._slots)
        if self._listener is not None:
            self._databases.set(_addresses(self._watches))
            self._note(self._web, self._web.keep(), None)
        if any(watch.state in (ACTIVE, LOST) for watch in self._watches):
            self._note(self._pipeline, self._pipeline.keep(), None)
        # Started when a scheduler of a database with enable_refresh_broker has registered a source; then it stays.
        if self._broker.since or self._registry.has_interests():
            self._note(self._broker, self._broker.keep(), None)
        for key, (slot, child) in list(self._schedulers.items()):
            status = child.keep()
            if status is None:
                continue
            self._gone(slot)
            if status in (schedulerprocess.NOT_INSTALLED, schedulerprocess.OTHER_VERSION):
                next(w for w in self._watches if w.server == key[0]).forget(key[1])
                del self._schedulers[key]
                if status == schedulerprocess.NOT_INSTALLED:
                    log.info(
                        "pgtrickle is no longer installed in a database",
                        extra=event(UNINSTALLED, database=key[2]),
                    )
            else:
                self._note(child, status, key[2])
        if have_looked and not wanted and not any(watch.has_other_versions for watch in self._watches):
            self._tell_once()
        self._publish()

    def _see_off(self) -> None:
        """Processes that end slowly do not delay the others."""
        staying = []
        for slot, child, until in self._leaving:
            if child.is_gone() or time.monotonic() > until:
                child.end(0.0)
                self._gone(slot)
            else:
                staying.append((slot, child, until))
        self._leaving = staying

    def _gone(self, slot: int) -> None:
        self._memory.write_scheduler(slot, None)
        self._memory.write_slots(self._slots)

    def _note(self, child: SupervisedProcess, status: int | None, database: str | None) -> None:
        if status is None or self._stop.is_set():
            return
        fields = {"kind": child.kind, "status": status, **({"database": database} if database else {})}
        log.warning("A process exited; restarting it", extra=event(CHILD_ENDED, **fields))

    def _free_slot(self) -> int | None:
        taken = {slot for slot, _ in self._schedulers.values()} | {slot for slot, _, _ in self._leaving}
        return next((slot for slot in range(MOST_DATABASES) if slot not in taken), None)

    def _spawner(self, slot: int, found: ManagedDatabaseInfo) -> schedulerprocess.Spawner:
        def spawn() -> BaseProcess:
            task = SchedulerTask(
                self._directory,
                self._authkey,
                self._sources,
                found.name,
                found.dsn,
                slot,
                self._servers,
                found.dsn == self._home,
            )
            return self._small.Process(target=schedulerprocess.main, args=(task,), name=f"scheduler {found.name}")

        return spawn

    def _spawn_pipeline(self) -> BaseProcess:
        task = PipelineTask(self._directory, self._authkey, self._settings, self._spark.address.follow(), self._servers)
        # Not forked: gRPC and the JVM's client do not survive it.
        return multiprocessing.get_context("spawn").Process(target=pipelineprocess.main, args=(task,), name="pipeline")

    def _spawn_broker(self) -> BaseProcess:
        task = BrokerTask(self._directory, self._sources, self._servers)
        return self._small.Process(target=brokerprocess.main, args=(task,), name="broker")

    def _spawn_web(self) -> BaseProcess:
        assert self._listener is not None
        task = WebTask(self._directory, self._settings, self._sources, self._listener, self._databases.follow())
        return self._small.Process(target=webprocess.main, args=(task,), name="web")

    def _tell_once(self) -> None:
        if self._is_told:
            return
        self._is_told = True
        log.warning(
            "pgtrickle is not installed in any database of this server; waiting for `pgtrickle install DSN`",
            extra=event(NOTHING_INSTALLED, server=", ".join(redact(w.server) for w in self._watches)),
        )

    def _publish(self) -> None:
        state = "ACTIVE" if any(w.state == ACTIVE for w in self._watches) else self._watches[0].state
        processes = [ProcessState("launcher", os.getpid(), state, self._since)]
        # A scheduler says itself that it works; one that hangs cannot say that it does.
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
            child.ask_to_stop()
        for child in schedulers:
            child.end(deadline - time.monotonic())
        self._broker.end(0.0)  # it has no work to finish
        self._web.end(0.0)
        self._pipeline.ask_to_stop()
        self._pipeline.end(DRAIN_SECONDS)
        self._spark.stop()
        for watch in self._watches:
            watch.join(2.0)


def _addresses(watches: Sequence[ServerWatch]) -> list[DatabaseAddress]:
    """Databases of one server are known by their names; in a larger fleet the server is part of the label."""
    found = []
    for watch in watches:
        server = server_label(watch.server)
        for database in watch.databases:
            label = database.name if len(watches) == 1 else f"{database.name}@{server}"
            found.append(DatabaseAddress(label, database.name, server, database.dsn))
    return found


def _keep_sockets_in(directory: Path) -> None:
    """The fork server's socket, too, goes with our directory when we are killed and the next run tidies up. Otherwise
    it is removed by multiprocessing when we exit, and our directory after that."""
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        multiprocessing.util.get_temp_dir()  # made once, and kept
    finally:
        tempfile.tempdir = before
    remove = {"ignore_errors": True}
    multiprocessing.util.Finalize(None, shutil.rmtree, (directory,), remove, exitpriority=_AFTER_SOCKETS)


def _hide_main_module() -> None:
    """Otherwise children would import the main program, with its command line, into their own memory."""
    main = sys.modules["__main__"]
    main.__spec__ = None
    main.__file__ = None
