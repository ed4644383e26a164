"""Work that the scheduler gives to the dispatcher: units of stream tables, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SINGLETON, CHAIN, ATOMIC = "singleton", "fused_chain", "atomic_group"
REPEATABLE_READ, IMMEDIATE, CYCLIC = "repeatable_read_group", "immediate_closure", "cyclic_scc"
# A lower band goes first.
BANDS: Mapping[str, int] = {IMMEDIATE: 0, ATOMIC: 1, REPEATABLE_READ: 1, CHAIN: 1, SINGLETON: 2, CYCLIC: 3}

TIERS = ("hot", "warm", "cold", "frozen")
MULTIPLIERS: Mapping[str, int] = {"hot": 1, "warm": 2, "cold": 10}

SUCCEEDED = "SUCCEEDED"
RETRYABLE, PERMANENT, CANCELLED = "RETRYABLE_FAILED", "PERMANENT_FAILED", "CANCELLED"


@dataclass(frozen=True, slots=True)
class Node:
    """A stream table as a node of the dependency graph."""

    pgt_id: int
    relid: int  # of its storage table, which its readers have as a source
    sources: tuple[int, ...]  # relations that it reads and whose changes are captured, stream tables among them
    schedule: str
    refresh_mode: str
    tier: str = "hot"
    diamond_consistency: str | None = None  # None = atomic
    diamond_schedule_policy: str | None = None  # None = fastest


@dataclass(frozen=True, slots=True)
class RefreshGroup:
    """Stream tables that a user declared to be refreshed together."""

    name: str
    members: tuple[int, ...]
    isolation: str  # read_committed or repeatable_read


@dataclass(frozen=True, slots=True)
class Unit:
    """Stream tables that one worker refreshes at one snapshot. `levels`: upstream first."""

    kind: str
    levels: tuple[tuple[int, ...], ...]
    tier: int = 0  # the hottest of its members, as a position in TIERS
    order: int = 0  # position of its first member in topological order

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(i for level in self.levels for i in level)

    @property
    def size(self) -> int:
        return sum(map(len, self.levels))

    @property
    def key(self) -> str:
        """Identifies the unit, for display and to detect whether it is already in progress."""
        return f"{self.kind}:{'-'.join(map(str, self.members))}"

    @property
    def priority(self) -> tuple[int, int, int]:
        return BANDS[self.kind], self.tier, self.order


@dataclass(frozen=True, slots=True)
class QueuedUnit:
    """A unit that was queued; `job_id` is its row of pgt_scheduler_jobs.

    `changes_seen_at`: when the latest poll of other databases that made it due had ended, by the monotonic clock (a
    clock that is set back would make an older reading look newer). A statement at the origin that began later sees
    everything that the poll saw. 0: unknown, so it is read again. None: it reads no other database.
    """

    job_id: int
    unit: Unit
    changes_seen_at: float | None = None
