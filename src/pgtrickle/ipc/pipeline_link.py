"""A scheduler's connection to the pipeline: opened on demand, reopened when the pipeline was restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from pgtrickle.errors import TransientError
from pgtrickle.ipc.channel import ClearCaches, DatabaseSettings, Finished, FromScheduler, Submit, Withdraw, call
from pgtrickle.model.work import QueuedUnit

PATIENCE_SECONDS = 0.5  # a tick continues without the pipeline instead of waiting longer
PAUSE_SECONDS = 0.5


class PipelineLink:
    """`connection` is None while the pipeline is not connected."""

    def __init__(self, path: Path, key: bytes, stop: threading.Event) -> None:
        self._path = path
        self._key = key
        self._stop = stop
        self._next = 0.0
        self.connection: Connection | None = None
        self.losses = 0  # how often the connection was lost

    def open(self, hello: DatabaseSettings) -> bool:
        """Opens the connection if necessary and introduces the database. False: not possible now."""
        if self.connection is not None:
            return True
        if time.monotonic() < self._next:
            return False
        try:
            self.connection = call(self._path, self._key, seconds=PATIENCE_SECONDS, is_stopped=self._stop.is_set)
        except TransientError:
            self._next = time.monotonic() + PAUSE_SECONDS
            return False
        return self.send(hello)

    def submit(self, jobs: Sequence[QueuedUnit]) -> bool:
        return self.send(Submit(tuple(jobs)))

    def withdraw(self) -> None:
        self.send(Withdraw())

    def clear_caches(self) -> None:
        self.send(ClearCaches())

    def send(self, message: FromScheduler) -> bool:
        """False: the connection is lost."""
        if self.connection is None:
            return False
        try:
            self.connection.send(message)
        except (OSError, ValueError):
            self.close()
            return False
        return True

    def receive(self) -> list[Finished]:
        """Messages that have arrived; closes the connection when the pipeline has ended."""
        found: list[Finished] = []
        try:
            while self.connection is not None and self.connection.poll():
                found.append(self.connection.recv())
        except (OSError, EOFError):
            self.close()
        return found

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            self.losses += 1
