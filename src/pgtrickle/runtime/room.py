"""How much a refresh from changes may bring before the table is computed anew instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pgtrickle.errors import TooManyRowsError


@dataclass(frozen=True, slots=True)
class Room:
    """What changes may bring before all is computed anew. `bytes` 0: as many as there are."""

    rows: int
    bytes: int


def within(
    room: Room | None, parts: Iterator[Any], rows: Callable[[Any], int], size: Callable[[Any], int]
) -> Iterator[Any]:
    """The parts, one after the other, as long as there is room for them. None: there is for all."""
    found = held = 0
    for part in parts:
        if room is not None:
            found, held = found + rows(part), held + size(part)
            if found > room.rows:
                raise TooManyRowsError(f"the changes touch more than {room.rows} rows")
            if room.bytes and held > room.bytes:
                most = room.bytes >> 20
                raise TooManyRowsError(f"the changes bring more than {most} MB (delta_work_mem_cap_mb)")
        yield part


def row_bytes(row: Sequence[Any]) -> int:
    """As Arrow will have it: the texts, and 16 bytes for a number or the place of a text."""
    return sum(16 + (len(v.encode()) if isinstance(v, str) else 0) for v in row)
