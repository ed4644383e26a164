"""An executed plan, of either engine: operators with their rows and their time. No condition and no value of a row is
part of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Operator:
    """`rows`: that it returned. `ms`: the time that it took, with its inputs in PostgreSQL; in Spark that of all its
    tasks. None: the engine does not measure it."""

    name: str
    rows: int | None
    ms: float | None
    inputs: tuple[Operator, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.name,
            "rows": self.rows,
            "ms": None if self.ms is None else round(self.ms, 3),
            "inputs": [each.to_json() for each in self.inputs],
        }

    def all(self) -> Iterator[tuple[int, Operator]]:
        """With their depth, each before its inputs."""
        left = [(0, self)]
        while left:
            depth, each = left.pop()
            yield depth, each
            left += [(depth + 1, below) for below in reversed(each.inputs)]
