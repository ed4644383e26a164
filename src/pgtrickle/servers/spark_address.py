"""The address of Spark. It contains a token, so it stays in memory: other processes get it through a pipe that
they inherit, and no file contains it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from pgtrickle.errors import EngineLostError


class SparkAddress:
    """The address while Spark answers, None while it does not. Any thread may set it, and read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._url: str | None = None
        self._senders: list[Connection] = []

    def __call__(self) -> str | None:
        return self._url

    def set(self, url: str | None) -> None:
        with self._lock:
            self._url = url
            self._senders = [sender for sender in self._senders if _send(sender, url)]

    def follow(self) -> Connection:
        """For another process: receives the current and all later addresses. See `RemoteSparkAddress`."""
        receiver, sender = Pipe(duplex=False)
        with self._lock:
            if _send(sender, self._url):
                self._senders.append(sender)
        return receiver


def _send(sender: Connection, url: str | None) -> bool:
    """False when the receiver has ended."""
    try:
        sender.send(url)
    except OSError:
        sender.close()
        return False
    return True


class RemoteSparkAddress:
    """The address of a `SparkAddress` in another process."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._url: str | None = None
        threading.Thread(target=self._listen, name="spark address", daemon=True).start()

    def __call__(self) -> str | None:
        return self._url

    def _listen(self) -> None:
        try:
            while True:
                self._url = self._pipe.recv()
        except (OSError, EOFError):
            pass  # the launcher has ended, and this process ends with it


class SparkUrlWaiter:
    """Waits for Spark while it starts: `first` seconds at most, or `restart` seconds after it was available once.

    The time counts, for all callers, from when Spark was first found missing. Otherwise consecutive callers would hold
    their snapshots for the waits of all callers before them.
    """

    def __init__(self, address: Callable[[], str | None], first: float, restart: float, stop: threading.Event) -> None:
        self._address = address
        self._seconds = first
        self._restart_seconds = restart
        self._stop = stop
        self._lock = threading.Lock()
        self._missing_since: float | None = None

    def __call__(self) -> str:
        while (url := self._address()) is None:
            with self._lock:
                since = self._missing_since = self._missing_since or time.monotonic()
            if self._stop.is_set() or time.monotonic() > since + self._seconds:
                raise EngineLostError("Spark is not available")
            self._stop.wait(0.05)
        with self._lock:
            self._missing_since = None
            self._seconds = self._restart_seconds
        return url
