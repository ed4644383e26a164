"""How many workers a database may have at a time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

WORKER_CONNECTIONS = 2  # one reads at a snapshot, one writes


@dataclass(frozen=True, slots=True)
class WorkerLimit:
    """The settings of a database. `quota` 0: none, then `max_concurrent` applies."""

    quota: int = 0
    max_concurrent: int = 4

    def __post_init__(self) -> None:
        if self.quota < 0 or self.max_concurrent < 1:
            raise ValueError(f"no such limit: {self}")

    @property
    def guaranteed(self) -> int:
        """Workers that it gets before others exceed their guarantee. Without a quota: one."""
        return max(1, self.quota)


# For `parallel_refresh_mode = off`: one lease at a time.
SERIAL = WorkerLimit(quota=0, max_concurrent=1)


def may_burst(active: int, max_workers: int) -> bool:
    """Whether the fleet's load is below 80 %: active < ceil(0.8 * max), in whole numbers."""
    return active < -(-4 * max_workers // 5)


def cap(limit: WorkerLimit, active: int, max_workers: int) -> int:
    """Workers that a database may have while `active` workers of the fleet are busy."""
    if limit.quota == 0:
        return limit.max_concurrent
    base = limit.guaranteed
    return max(base * 3 // 2, base + 1) if may_burst(active, max_workers) else base
