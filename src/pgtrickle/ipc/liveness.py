"""Whether a process id still belongs to the same process, and whether the process still works."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

_STOPPED = ("T", "t")  # by SIGSTOP or a debugger


def start_time(pid: int) -> str | None:
    """Distinguishes a process from a later one with the same id; None if it has ended."""
    try:
        return _stat(pid)[19]
    except OSError:
        return None


def is_stopped(pid: int) -> bool:
    """Whether it got a SIGSTOP: it neither ends nor works."""
    try:
        return _stat(pid)[0] in _STOPPED
    except OSError:
        return False


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


class Heartbeat:
    """A file that a working process touches. Written by the main loop itself, so that a loop that hangs is seen."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def beat(self) -> None:
        self.path.touch()

    def value(self) -> int | None:
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return None


class StallDetector:
    """Says that something has stood still for `seconds`, by the clock of a process that was awake meanwhile: a machine
    that sleeps stops that clock, too."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._value: object = None
        self._since = clock()

    @property
    def since(self) -> float:
        """When it last moved, by the clock."""
        return self._since

    def is_stalled(self, value: object) -> bool:
        """`value`: another one whenever it has moved."""
        if value != self._value:
            self._value, self._since = value, self._clock()
        return self._clock() - self._since >= self._seconds
