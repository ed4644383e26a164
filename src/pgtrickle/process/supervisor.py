"""A process that is restarted when it ends, with increasing pauses while it keeps ending."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

from pgtrickle.ipc.liveness import Heartbeat, StallDetector, is_stopped, start_time
from pgtrickle.telemetry import CHILD_HUNG, event

log = logging.getLogger(__name__)

STALL_SECONDS = 20.0  # without a sign of life
SILENT_SECONDS = 5.0  # after which the list of processes shows it as HUNG
BACKOFF_SECONDS = (0.2, 1.0, 2.0, 4.0, 8.0, 15.0)
HEALTHY_SECONDS = 60.0  # after this lifetime the shortest pause applies again
UNKNOWN = 255  # exit status of a child whose fork server ended before it


class SupervisedProcess:
    """`spawn` creates a process that is not started yet."""

    def __init__(self, kind: str, spawn: Callable[[], BaseProcess], heartbeat: Heartbeat | None = None) -> None:
        """`heartbeat`: the file that the process updates while it works."""
        self.kind = kind
        self._heartbeat = heartbeat
        self._stalls = StallDetector(STALL_SECONDS)
        self._spawn = spawn
        self.process: BaseProcess | None = None
        self.since = 0.0
        self._failures = 0
        self._start_due = 0.0
        self._process_start: str | None = None
        self._silent_since: float | None = None

    @property
    def state(self) -> str:
        """As the list of processes shows it. HUNG: it was stopped, or its loop does not run; it will be killed."""
        since = self._silent_since
        return "HUNG" if since is not None and time.monotonic() - since >= SILENT_SECONDS else "ACTIVE"

    def keep(self) -> int | None:
        """Starts it when it is due; returns the exit status when it has ended since the last call."""
        now = time.monotonic()
        if self.process is None:
            if now >= self._start_due:
                return self._start(now)
            return None
        if self.process.is_alive():
            self._end_if_hung()
            return None
        status, pid = self.process.exitcode, self.process.pid
        self.process.close()
        self.process = None
        if (
            status == UNKNOWN
            and pid is not None
            and self._process_start is not None
            and start_time(pid) == self._process_start
        ):
            os.kill(pid, signal.SIGKILL)  # only the process that reports the status has ended
        self._pause(now)
        return status

    def _end_if_hung(self) -> None:
        """Kills a process that was stopped (SIGSTOP) or whose loop does not run; it is then restarted."""
        pid = self.pid
        if pid is None:
            return
        beat = (pid, is_stopped(pid) or (self._heartbeat is not None and self._heartbeat.value()))
        if beat[1] is False:  # it has no heartbeat and was not stopped
            beat = (pid, time.monotonic_ns())
        is_stalled = self._stalls.is_stalled(beat)
        self._silent_since = self._stalls.since
        if is_stalled:
            log.error(
                "A process does not respond; it is killed and restarted",
                extra=event(CHILD_HUNG, kind=self.kind, pid=pid, seconds=STALL_SECONDS),
            )
            os.kill(pid, signal.SIGKILL)

    def _start(self, now: float) -> int | None:
        process = self._spawn()
        try:
            process.start()
        except (OSError, EOFError):  # no memory or no process available, or the fork server has just ended
            self._pause(now)
            return os.EX_OSERR
        self.process = process
        self._silent_since = None
        self.since = time.time()
        self._start_due = now
        self._process_start = start_time(process.pid) if process.pid is not None else None
        return None

    def _pause(self, now: float) -> None:
        self._failures = 0 if now - self._start_due > HEALTHY_SECONDS else self._failures
        self._start_due = now + BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def has_ended(self) -> bool:
        return self.process is None or not self.process.is_alive()

    def request_stop(self) -> None:
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
