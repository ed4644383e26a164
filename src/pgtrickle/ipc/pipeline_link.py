"""A scheduler's link to the dispatcher: a socket to the pipeline's process, or a queue in the same process."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from pgtrickle.errors import TransientError
from pgtrickle.ipc.channel import (
    ClearCaches,
    DatabaseSettings,
    Finished,
    FromScheduler,
    ReplyChannel,
    Submit,
    Withdraw,
    call,
)
from pgtrickle.model.work import QueuedUnit

PATIENCE_SECONDS = 0.5  # a tick continues without the pipeline instead of waiting longer
PAUSE_SECONDS = 0.5


class PipelineLink(ABC):
    """What a scheduler needs of it."""

    losses = 0  # how often the connection was lost

    @property
    @abstractmethod
    def is_open(self) -> bool: ...

    @abstractmethod
    def open(self, hello: DatabaseSettings) -> bool:
        """Opens the connection if necessary and introduces the database. False: not possible now."""

    @abstractmethod
    def send(self, message: FromScheduler) -> bool:
        """False: the connection is lost."""

    @abstractmethod
    def receive(self) -> list[Finished]:
        """Messages that have arrived."""

    def submit(self, jobs: Sequence[QueuedUnit]) -> bool:
        return self.send(Submit(tuple(jobs)))

    def withdraw(self) -> None:
        self.send(Withdraw())

    def clear_caches(self) -> None:
        self.send(ClearCaches())


class SocketPipelineLink(PipelineLink):
    """To the pipeline's process: opened on demand, reopened when the pipeline was restarted.

    `connection` is None while the pipeline is not connected.
    """

    def __init__(self, path: Path, key: bytes, stop: threading.Event) -> None:
        self._path = path
        self._key = key
        self._stop = stop
        self._next = 0.0
        self.connection: Connection | None = None

    @property
    def is_open(self) -> bool:
        return self.connection is not None

    def open(self, hello: DatabaseSettings) -> bool:
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

    def send(self, message: FromScheduler) -> bool:
        if self.connection is None:
            return False
        try:
            self.connection.send(message)
        except (OSError, ValueError):
            self.close()
            return False
        return True

    def receive(self) -> list[Finished]:
        """Closes the connection when the pipeline has ended."""
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


class LocalPipelineLink(PipelineLink):
    """To a dispatcher in the same process. `deliver` hands it a message, and the channel for its answers."""

    def __init__(self, deliver: Callable[[ReplyChannel, FromScheduler], None]) -> None:
        self._deliver = deliver
        self._replies = QueuedReplies()
        self._is_open = False

    @property
    def is_open(self) -> bool:
        return self._is_open

    def open(self, hello: DatabaseSettings) -> bool:
        if not self._is_open:
            self._is_open = True
            self.send(hello)
        return True

    def send(self, message: FromScheduler) -> bool:
        if self._is_open:
            self._deliver(self._replies, message)
        return self._is_open

    def receive(self) -> list[Finished]:
        return self._replies.take()


class QueuedReplies:
    """To a scheduler in the same process, which takes them when it likes."""

    def __init__(self) -> None:
        self._messages: deque[Finished] = deque()

    def has_room(self) -> bool:
        return True

    def send(self, message: Finished) -> None:
        self._messages.append(message)

    def take(self) -> list[Finished]:
        found = list(self._messages)
        self._messages.clear()
        return found
