"""When to report that a subscriber lags: once at the beginning, then periodically while it lasts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

REPEAT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Laggard:
    """A subscriber whose lag exceeds the limit. `table` is None for a replication slot: PostgreSQL does not record
    whose changes it reads."""

    kind: str
    table: str | None
    name: str
    bytes: int

    @property
    def title(self) -> str:
        return f"replication slot {self.name}" if self.kind == "slot" else f"subscriber {self.name}"


class LagWatch:
    """Remembers which subscribers were reported, and when."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, str | None, str], float] = {}

    def due_reports(self, lagging: Sequence[Laggard], now: float) -> list[Laggard]:
        """The lagging subscribers that must be reported now. Subscribers that have caught up are removed."""
        keys = {(s.kind, s.table, s.name): s for s in lagging}
        self._reported = {key: at for key, at in self._reported.items() if key in keys}
        due = [s for key, s in keys.items() if now - self._reported.get(key, float("-inf")) >= REPEAT_SECONDS]
        self._reported |= {(s.kind, s.table, s.name): now for s in due}
        return due
