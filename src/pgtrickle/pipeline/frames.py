"""Leaf rows as Arrow tables, with the checks that keep them exact."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from pgtrickle.errors import InexactValueError

if TYPE_CHECKING:
    import pyarrow as pa

PRECISION = 38


def arrow_type(carrier: str) -> pa.DataType:
    import pyarrow as pa

    if carrier == "long":
        return pa.int64()
    if carrier == "bool":
        return pa.bool_()
    if carrier == "string":
        return pa.string()
    return pa.decimal128(PRECISION, decimal_scale(carrier))


def decimal_scale(carrier: str) -> int:
    return int(carrier.partition(":")[2])


def from_rows(rows: Sequence[Sequence[Any]], carriers: Sequence[str], *, weighted: bool) -> pa.Table:
    """Rows of a leaf statement: the weight first (if weighted), then the carried columns, named c0, c1, ..."""
    import pyarrow as pa

    names = [*(["w"] if weighted else []), *(f"c{i}" for i in range(len(carriers)))]
    types = [*(["long"] if weighted else []), *carriers]
    arrays = []
    for position, carrier in enumerate(types):
        values = [row[position] for row in rows]
        arrays.append(_array(values, carrier))
    return pa.Table.from_arrays(arrays, names=names)


def from_arrow(table: pa.Table, carriers: Sequence[str], *, weighted: bool) -> pa.Table:
    """The same from an Arrow result of a bulk read, where decimals arrive as text."""
    import pyarrow as pa

    types = [*(["long"] if weighted else []), *carriers]
    names = [*(["w"] if weighted else []), *(f"c{i}" for i in range(len(carriers)))]
    arrays = []
    for column, carrier in zip(table.columns, types, strict=False):
        try:
            arrays.append(column.cast(arrow_type(carrier)))
        except pa.ArrowInvalid as error:
            raise inexact(carrier, str(error)) from error
    return pa.Table.from_arrays(arrays, names=names)


def _array(values: list[Any], carrier: str) -> pa.Array:
    import pyarrow as pa

    if not carrier.startswith("decimal"):
        return pa.array(values, arrow_type(carrier))
    try:
        numbers = [None if v is None else Decimal(v) for v in values]
        if any(n is not None and not n.is_finite() for n in numbers):
            raise inexact(carrier, "NaN or infinity")
        return pa.array(numbers, arrow_type(carrier))
    except (pa.ArrowInvalid, InvalidOperation) as error:
        raise inexact(carrier, str(error)) from error


def inexact(carrier: str, detail: str) -> InexactValueError:
    return InexactValueError(
        f"a numeric value does not fit decimal({PRECISION},{decimal_scale(carrier)}) exactly ({detail})"
        if carrier.startswith("decimal")
        else f"a value cannot be carried exactly ({detail})"
    )
