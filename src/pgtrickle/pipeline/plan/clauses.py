"""The clauses of one SELECT as ranges of tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A call with OVER: the token of its name, and the parts of its window."""

    at: int
    partition: tuple[Range, ...]
    order: tuple[Range, ...]
    by_rows: bool  # the frame counts rows


@dataclass(slots=True)
class Clauses:
    """Token ranges of a SELECT's clauses; items are (name, start, stop)."""

    items: list[tuple[str, int, int]]
    group: list[Range] = field(default_factory=list)
    having: Range | None = None
    window: Range | None = None
    order: Range | None = None
    limit: Range | None = None
    on: Range | None = None
    is_grouped: bool = False
    windows: list[WindowCall] = field(default_factory=list)
    source: Range | None = None
    where: Range | None = None
    dependent: list[Range] = field(default_factory=list)  # functionally dependent on `group`, and added to GROUP BY

    @property
    def is_regional(self) -> bool:
        return bool(self.is_grouped or self.windows or self.on or self.limit is not None)
