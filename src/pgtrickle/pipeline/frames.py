"""Leaf rows as Arrow tables: weight, key, sums, extremes. Numbers are checked; one that does not fit is refused.

The check is ours: Arrow's conversions to decimal wrap around for some numbers that do not fit, without an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pgtrickle.errors import InexactValueError
from pgtrickle.pipeline.carriers import PRECISION, SCALE
from pgtrickle.pipeline.leaves import Slots

if TYPE_CHECKING:
    import pyarrow as pa

# For Arrow's regular expressions as well as Python's: zeros that end a fraction, and a number that fits without them.
_ZEROS = r"(\.(?:[0-9]*[1-9])?)0+$"
_FITS = rf"^-?[0-9]{{1,{PRECISION - SCALE}}}(?:\.[0-9]{{0,{SCALE}}})?$"
MANY = 200  # numbers that Arrow checks and converts more quickly than Python does: 3,500 in 1 ms instead of 50


def names(slots: Slots) -> list[str]:
    """Columns of a leaf: w, k, s0.., then o0, x0.. (order and text of each extreme)."""
    extremes = [f"{kind}{i}" for i in range(slots.extremes) for kind in ("o", "x")]
    return ["w", "k", *(f"s{i}" for i in range(slots.sums)), *extremes]


@dataclass(frozen=True, slots=True)
class Rows:
    """A leaf as the driver returns it, where numbers are text: made an Arrow table together with others."""

    slots: Slots
    rows: Sequence[tuple[Any, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> pa.Array:
        """A column, as a table would give it."""
        place = names(self.slots).index(name)
        return _array([row[place] for row in self.rows], name)


def from_rows(rows: Sequence[Sequence[Any]], slots: Slots) -> pa.Table:
    """Rows of a leaf statement as the driver returns them: numbers are text."""
    import pyarrow as pa

    columns = names(slots)
    arrays = [_array([row[position] for row in rows], name) for position, name in enumerate(columns)]
    return pa.Table.from_arrays(arrays, names=columns)


def from_arrow(table: pa.Table, slots: Slots) -> pa.Table:
    """The same from the Arrow result of a bulk read, whose columns are all text but the weight."""
    import pyarrow as pa

    columns = names(slots)
    arrays = [_cast(column, name) for name, column in zip(columns, table.columns, strict=True)]
    return pa.Table.from_arrays(arrays, names=columns)


def text_types(slots: Slots) -> list[pa.DataType]:
    """Types in which a bulk read fetches a leaf."""
    import pyarrow as pa

    return [pa.int64() if name == "w" else pa.string() for name in names(slots)]


def together(leaves: Sequence[pa.Table | Rows], slots: Slots) -> pa.Table:
    """The rows of all leaves and, as `t`, the number of each one's leaf. Empty columns stand for slots that a leaf does
    not have, so that different templates share one plan.

    In one piece: a table of many is sent and read piece by piece, which takes longer than what is done with them.
    """
    import numpy as np
    import pyarrow as pa

    columns = names(slots)
    # What came as rows is made one table: to begin an Arrow array takes longer than to fill it.
    loose = {number: leaf for number, leaf in enumerate(leaves) if isinstance(leaf, Rows)}
    tables = [_padded(list(loose.values()), slots)] if loose else []
    tables += [leaf for leaf in leaves if not isinstance(leaf, Rows)]
    numbers = [*loose, *(number for number in range(len(leaves)) if number not in loose)]
    arrays = []
    for name in columns:
        places = [table.schema.get_field_index(name) for table in tables]
        parts = [
            table.column(place).chunks if place >= 0 else [pa.nulls(len(table), _type(name))]
            for table, place in zip(tables, places, strict=True)
        ]
        arrays.append(pa.concat_arrays([chunk for chunks in parts for chunk in chunks]))
    counted = np.repeat(np.array(numbers, dtype=np.int32), [len(leaves[number]) for number in numbers])
    return pa.Table.from_arrays([*arrays, pa.array(counted)], names=[*columns, "t"])


def _padded(leaves: Sequence[Rows], slots: Slots) -> pa.Table:
    """Leaves of rows as one, with None where a leaf has no such slot."""
    import pyarrow as pa

    columns = names(slots)
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for leaf in leaves:
        if not leaf.rows:
            continue
        own = dict(zip(names(leaf.slots), zip(*leaf.rows, strict=True), strict=True))
        for name in columns:
            values[name] += own.get(name) or [None] * len(leaf.rows)
    return pa.Table.from_arrays([_array(values[name], name) for name in columns], names=columns)


def _type(name: str) -> pa.DataType:
    import pyarrow as pa

    if name == "w":
        return pa.int64()
    return pa.string() if name[0] in "kx" else pa.decimal128(PRECISION, SCALE)


def _cast(column: pa.ChunkedArray | pa.Array, name: str) -> pa.ChunkedArray | pa.Array:
    import pyarrow.compute as pc

    if name[0] not in "so":
        return column.cast(_type(name))
    trimmed = pc.replace_substring_regex(column, pattern=_ZEROS, replacement=r"\1")
    misfits = pc.filter(trimmed, pc.invert(pc.match_substring_regex(trimmed, pattern=_FITS)))
    if len(misfits):
        raise _inexact(misfits[0].as_py())
    return trimmed.cast(_type(name))


def _array(values: list[Any], name: str) -> pa.Array:
    import pyarrow as pa

    if name[0] not in "so":
        return pa.array(values, _type(name))
    if len(values) >= MANY:
        return _cast(pa.array(values, pa.string()), name)
    return pa.array([None if v is None else _decimal(v) for v in values], _type(name))


def _decimal(text: str) -> Decimal:
    if text.isdecimal() and len(text) <= PRECISION - SCALE:  # what most numbers are
        return Decimal(text)
    trimmed = re.sub(_ZEROS, r"\1", text)
    if not re.match(_FITS, trimmed):
        raise _inexact(trimmed)
    return Decimal(trimmed)


def _inexact(value: str) -> InexactValueError:
    shown = value if len(value) <= 50 else f"{value[:50]}..."
    return InexactValueError(f"a numeric value does not fit decimal({PRECISION},{SCALE}) exactly ({shown})")
