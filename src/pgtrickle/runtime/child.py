"""A process that is started again when it ends, later and later while it keeps ending."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

BACKOFF_SECONDS = (0.2, 1.0, 2.0, 4.0, 8.0, 15.0)
HEALTHY_SECONDS = 60.0  # who lived so long begins at the shortest pause again


class Child:
    """`spawn` makes a process that is not started yet."""

    def __init__(self, kind: str, spawn: Callable[[], BaseProcess]) -> None:
        self.kind = kind
        self._spawn = spawn
        self.process: BaseProcess | None = None
        self.since = 0.0
        self.restarts = 0
        self._failures = 0
        self._next = 0.0

    def keep(self) -> int | None:
        """Starts it when it is due; returns the exit status when it has just been found ended."""
        now = time.monotonic()
        if self.process is None:
            if now >= self._next:
                self.process = self._spawn()
                self.process.start()
                self.since = time.time()
                self._next = now
            return None
        if self.process.is_alive():
            return None
        status = self.process.exitcode
        self.process.close()
        self.process = None
        self.restarts += 1
        self._failures = 0 if now - self._next > HEALTHY_SECONDS else self._failures
        self._next = now + BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        return status

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def ask_to_stop(self) -> None:
        if self.process is not None and self.process.is_alive():
            self.process.terminate()

    def end(self, seconds: float) -> None:
        """Waits so long, and then does not ask any more."""
        if self.process is None:
            return
        self.process.join(max(0.0, seconds))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()
        self.process = None
