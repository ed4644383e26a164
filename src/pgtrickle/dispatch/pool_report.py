"""Publishes the state of the dispatcher's pool at intervals, not with every message, because it covers all
databases."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgtrickle.ipc.fleet_memory import FleetMemory, PoolStatus, WorkerShare, WorkerState

PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class PoolState:
    """The pool as a whole, each database's part of it, and the workers that have connections."""

    pool: PoolStatus
    shares: Sequence[WorkerShare]
    workers: Sequence[WorkerState]


class PoolReport:
    """`make` returns the state. Call `write` whenever it may have changed, and again within `seconds_left`."""

    def __init__(self, memory: FleetMemory | None, make: Callable[[], PoolState]) -> None:
        self._memory = memory
        self._make = make
        self._next = 0.0
        self._is_late = False
        self._written: PoolState | None = None

    def write(self) -> None:
        if self._memory is None:  # there are no readers
            return
        now = time.monotonic()
        self._is_late = now < self._next
        if self._is_late:
            return
        report = self._make()
        if self._written != report:
            self._memory.write_pool(report.pool)
            self._memory.write_shares(report.shares)
            self._memory.write_workers(report.workers)
            self._written = report
        # For a thousand databases this takes milliseconds.
        self._next = time.monotonic() + max(PAUSE_SECONDS, 10 * (time.monotonic() - now))

    def seconds_left(self, otherwise: float) -> float:
        """Seconds until the next write; `otherwise` if nothing is pending."""
        return max(0.0, self._next - time.monotonic()) if self._is_late else otherwise
