"""The size of a delta above which a full refresh replaces a differential one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgtrickle.errors import TooManyRowsError


@dataclass(slots=True)
class DeltaBudget:
    """What remains of the budget of a delta. `bytes` 0: no limit."""

    rows: int
    bytes: int
    found: int = 0
    held: int = 0

    def take(self, rows: int, size: int) -> None:
        self.found, self.held = self.found + rows, self.held + size
        if self.found > self.rows:
            raise TooManyRowsError(f"the changes touch more than {self.rows} rows")
        if self.bytes and self.held > self.bytes:
            raise TooManyRowsError(f"the delta has more than {self.bytes >> 20} MB (delta_work_mem_cap_mb)")

    def take_rows(self, rows: Sequence[Sequence[Any]]) -> None:
        self.take(len(rows), sum(map(row_bytes, rows)))


def row_bytes(row: Sequence[Any]) -> int:
    """The size in Arrow: the texts, and 16 bytes for a number or the offset of a text."""
    return sum(16 + (len(v.encode()) if isinstance(v, str) else 0) for v in row)
