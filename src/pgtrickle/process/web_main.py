"""The web process: pages, metrics and health of the fleet. It is restarted when it ends; no process depends on it."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from pgtrickle.observe.database import DatabaseAddress
from pgtrickle.process.parent import end_with_parent, stop_on_signals
from pgtrickle.process.pipeline_main import memory_path
from pgtrickle.settings import Settings, Sources
from pgtrickle.telemetry import set_up_logging

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WebTask:
    """Arguments from the launcher. `databases`: receives the list of databases when it changes."""

    directory: Path
    settings: Settings
    sources: Sources
    listener: socket.socket
    databases: Connection


class DatabaseList:
    """Sends the databases of the fleet from the launcher to the web process, in memory: DSNs contain passwords."""

    def __init__(self) -> None:
        self._known: tuple[DatabaseAddress, ...] = ()
        self._sender: Connection | None = None

    def follow(self) -> Connection:
        receiver, self._sender = Pipe(duplex=False)
        self._send()
        return receiver

    def set(self, databases: Sequence[DatabaseAddress]) -> None:
        if tuple(databases) != self._known:
            self._known = tuple(databases)
            self._send()

    def _send(self) -> None:
        if self._sender is None:
            return
        try:
            self._sender.send(self._known)
        except OSError:  # the web process has ended; the next one gets the list when it starts
            self._sender = None


def main(task: WebTask) -> None:
    from pgtrickle.ipc.fleet_memory import FleetMemory
    from pgtrickle.observe.fleet import FleetObserver
    from pgtrickle.web.server import serve

    set_up_logging(task.settings.log_level, task.settings.log_format)
    end_with_parent()
    stop = threading.Event()
    stop_on_signals(stop)
    observer = FleetObserver(FleetMemory(memory_path(task.directory)), task.sources)
    threading.Thread(
        target=_listen, args=(task.databases, observer.set_databases), name="databases", daemon=True
    ).start()
    threading.Thread(target=observer.sample_until, args=(stop,), name="samples", daemon=True).start()
    serve(observer, task.settings, task.listener, stop)
    observer.close()
    sys.exit(0)


def _listen(pipe: Connection, set_databases: object) -> None:
    assert callable(set_databases)
    try:
        while True:
            set_databases(pipe.recv())
    except (OSError, EOFError):
        pass  # the launcher has ended, and this process ends with it
