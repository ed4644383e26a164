"""Leaf rows as Arrow tables: weight, key, sums, extremes. Numbers are checked; one that does not fit is refused."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from pgtrickle.errors import InexactValueError
from pgtrickle.pipeline.carriers import PRECISION, SCALE
from pgtrickle.pipeline.templates import Slots

if TYPE_CHECKING:
    import pyarrow as pa


def names(slots: Slots) -> list[str]:
    """Columns of a leaf: w, k, s0.., then o0, x0.. (order and text of each extreme)."""
    extremes = [f"{kind}{i}" for i in range(slots.extremes) for kind in ("o", "x")]
    return ["w", "k", *(f"s{i}" for i in range(slots.sums)), *extremes]


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
    try:
        arrays = [column.cast(_type(name)) for name, column in zip(columns, table.columns, strict=True)]
    except pa.ArrowInvalid as error:
        raise _inexact(str(error)) from error
    return pa.Table.from_arrays(arrays, names=columns)


def text_types(slots: Slots) -> list[pa.DataType]:
    """Types in which a bulk read fetches a leaf."""
    import pyarrow as pa

    return [pa.int64() if name == "w" else pa.string() for name in names(slots)]


def padded(table: pa.Table, slots: Slots) -> pa.Table:
    """The leaf with empty columns for the slots that it does not have, so that different templates share one plan."""
    import pyarrow as pa

    have = set(table.column_names)
    arrays = [table.column(n) if n in have else pa.nulls(len(table), _type(n)) for n in names(slots)]
    return pa.Table.from_arrays(arrays, names=names(slots))


def _type(name: str) -> pa.DataType:
    import pyarrow as pa

    if name == "w":
        return pa.int64()
    return pa.string() if name[0] in "kx" else pa.decimal128(PRECISION, SCALE)


def _array(values: list[Any], name: str) -> pa.Array:
    import pyarrow as pa

    if name[0] not in "so":
        return pa.array(values, _type(name))
    try:
        numbers = [None if v is None else Decimal(v) for v in values]
        if any(n is not None and not n.is_finite() for n in numbers):
            raise _inexact("NaN or infinity")
        return pa.array(numbers, _type(name))
    except (pa.ArrowInvalid, InvalidOperation) as error:
        raise _inexact(str(error)) from error


def _inexact(detail: str) -> InexactValueError:
    return InexactValueError(f"a numeric value does not fit decimal({PRECISION},{SCALE}) exactly ({detail})")
