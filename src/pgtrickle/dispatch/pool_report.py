"""What the dispatcher says about its pool: often enough to look at, not with every message, as it is about all
databases."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pgtrickle.ipc.fleet_memory import FleetMemory, PoolStatus, WorkerShare

PAUSE_SECONDS = 0.05


class PoolReport:
    """`make` tells how things are. Call `write` whenever they may have moved, and again within `seconds_left`."""

    def __init__(
        self, memory: FleetMemory | None, make: Callable[[], tuple[PoolStatus, Sequence[WorkerShare]]]
    ) -> None:
        self._memory = memory
        self._make = make
        self._next = 0.0
        self._is_late = False
        self._written: tuple[PoolStatus, Sequence[WorkerShare]] | None = None

    def write(self) -> None:
        if self._memory is None:  # nobody else wants to know
            return
        now = time.monotonic()
        self._is_late = now < self._next
        if self._is_late:
            return
        pool, shares = report = self._make()
        if self._written != report:
            self._memory.write_pool(pool)
            self._memory.write_shares(shares)
            self._written = report
        # Of a thousand databases it takes milliseconds.
        self._next = time.monotonic() + max(PAUSE_SECONDS, 10 * (time.monotonic() - now))

    def seconds_left(self, otherwise: float) -> float:
        """Until there is something to write; `otherwise`, if all that is known is written."""
        return max(0.0, self._next - time.monotonic()) if self._is_late else otherwise
