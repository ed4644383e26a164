"""A process that is restarted when it ends, with increasing pauses while it keeps ending."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

from pgtrickle.ipc.liveness import start_time

BACKOFF_SECONDS = (0.2, 1.0, 2.0, 4.0, 8.0, 15.0)
HEALTHY_SECONDS = 60.0  # after this lifetime the shortest pause applies again
UNKNOWN = 255  # exit status of a child whose fork server ended before it


class SupervisedProcess:
    """`spawn` creates a process that is not started yet."""

    def __init__(self, kind: str, spawn: Callable[[], BaseProcess]) -> None:
        self.kind = kind
        self._spawn = spawn
        self.process: BaseProcess | None = None
        self.since = 0.0
        self.restarts = 0
        self._failures = 0
        self._next = 0.0
        self._born: str | None = None

    def keep(self) -> int | None:
        """Starts it when it is due; returns the exit status when it has ended since the last call."""
        now = time.monotonic()
        if self.process is None:
            if now >= self._next:
                return self._start(now)
            return None
        if self.process.is_alive():
            return None
        status, pid = self.process.exitcode, self.process.pid
        self.process.close()
        self.process = None
        if status == UNKNOWN and pid is not None and self._born is not None and start_time(pid) == self._born:
            os.kill(pid, signal.SIGKILL)  # only the process that reports the status has ended
        self._pause(now)
        return status

    def _start(self, now: float) -> int | None:
        process = self._spawn()
        try:
            process.start()
        except (OSError, EOFError):  # no memory or no process available, or the fork server has just ended
            self._pause(now)
            return os.EX_OSERR
        self.process = process
        self.since = time.time()
        self._next = now
        self._born = start_time(process.pid) if process.pid is not None else None
        return None

    def _pause(self, now: float) -> None:
        self.restarts += 1
        self._failures = 0 if now - self._next > HEALTHY_SECONDS else self._failures
        self._next = now + BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def is_gone(self) -> bool:
        return self.process is None or not self.process.is_alive()

    def ask_to_stop(self) -> None:
        if self.process is not None and self.process.is_alive():
            self.process.terminate()

    def end(self, seconds: float) -> None:
        """Waits this long, then kills it."""
        if self.process is None:
            return
        self.process.join(max(0.0, seconds))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()
        self.process = None
