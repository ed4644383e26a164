"""A scheduler's line to the pipeline: opened when it is needed, opened again when the pipeline was restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from pgtrickle.errors import TransientError
from pgtrickle.ipc.channel import ClearCaches, DatabaseSettings, Finished, FromScheduler, Submit, Withdraw, call
from pgtrickle.model.work import QueuedUnit

PATIENCE_SECONDS = 0.5  # a tick goes on without the pipeline rather than wait longer for it
PAUSE_SECONDS = 0.5


class PipelineLink:
    """`connection` is None while there is nobody at the other end."""

    def __init__(self, path: Path, key: bytes, stop: threading.Event) -> None:
        self._path = path
        self._key = key
        self._stop = stop
        self._next = 0.0
        self.connection: Connection | None = None
        self.losses = 0  # how often the other end went, or stopped listening

    def open(self, hello: DatabaseSettings) -> bool:
        """Makes sure that there is a line and that the other end knows the database. False: not now."""
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
        """False: the line is gone."""
        if self.connection is None:
            return False
        try:
            self.connection.send(message)
        except (OSError, ValueError):
            self.close()
            return False
        return True

    def receive(self) -> list[Finished]:
        """What has arrived; closes the line when the other end has gone."""
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
