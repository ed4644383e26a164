"""Delta rows as Arrow tables: weight, key, sums, extremes. Numbers are texts until the input of a job is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle.pipeline.delta_layout import DeltaLayout
from pgtrickle.pipeline.engine.decimal_overflow import OverflowTotals, fitted

if TYPE_CHECKING:
    import pyarrow as pa


def names(slots: DeltaLayout) -> list[str]:
    """Columns of delta rows: w, k, s0.., then o0, x0.. (order and text of each extreme)."""
    extremes = [f"{kind}{i}" for i in range(slots.extremes) for kind in ("o", "x")]
    return ["w", "k", *(f"s{i}" for i in range(slots.sums)), *extremes]


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """Delta rows as the driver returns them; converted to Arrow together with others."""

    slots: DeltaLayout
    rows: Sequence[tuple[Any, ...]]

    def __len__(self) -> int:
        return len(self.rows)


def signed_keys(delta_rows: pa.Table | DeltaRows) -> tuple[list[int], list[str]]:
    """The weight and the key of each delta row: the only columns of whole rows."""
    if isinstance(delta_rows, DeltaRows):
        return [row[0] for row in delta_rows.rows], [row[1] for row in delta_rows.rows]
    return delta_rows.column("w").to_pylist(), delta_rows.column("k").to_pylist()


def from_batches(batches: Sequence[pa.Table], slots: DeltaLayout) -> pa.Table:
    """Delta rows from the batches of a bulk read, in `text_types`."""
    import pyarrow as pa

    empty = pa.schema(zip(names(slots), text_types(slots), strict=True)).empty_table()
    return pa.concat_tables([empty, *(batch.rename_columns(names(slots)) for batch in batches)])


def text_types(slots: DeltaLayout) -> list[pa.DataType]:
    """Column types of delta rows in a bulk read."""
    import pyarrow as pa

    return [pa.int64() if name == "w" else pa.string() for name in names(slots)]


def combine(deltas: Sequence[pa.Table | DeltaRows], slots: DeltaLayout) -> tuple[pa.Table, OverflowTotals]:
    """The delta rows of all tables with the table number as `t`; and the numbers that do not fit. Columns that a table
    does not use are empty, so that different templates share one plan.

    As one chunk: sending and reading a table of many chunks takes longer than processing it.
    """
    import numpy as np
    import pyarrow as pa

    columns = names(slots)
    # All Python rows become one table: creating an Arrow array takes longer than filling it.
    loose = {number: delta_rows for number, delta_rows in enumerate(deltas) if isinstance(delta_rows, DeltaRows)}
    tables = [_padded(list(loose.values()), slots)] if loose else []
    tables += [delta_rows for delta_rows in deltas if not isinstance(delta_rows, DeltaRows)]
    numbers = [*loose, *(number for number in range(len(deltas)) if number not in loose)]
    columns_of_all = {}
    for name, type_ in zip(columns, text_types(slots), strict=True):
        places = [table.schema.get_field_index(name) for table in tables]
        parts = [
            table.column(place).chunks if place >= 0 else [pa.nulls(len(table), type_)]
            for table, place in zip(tables, places, strict=True)
        ]
        columns_of_all[name] = pa.concat_arrays([chunk for chunks in parts for chunk in chunks])
    counted = np.repeat(np.array(numbers, dtype=np.int32), [len(deltas[number]) for number in numbers])
    return fitted({**columns_of_all, "t": pa.array(counted)})


def _padded(deltas: Sequence[DeltaRows], slots: DeltaLayout) -> pa.Table:
    """The Python rows of all tables, with None in columns that a table does not use."""
    import pyarrow as pa

    columns = names(slots)
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for delta_rows in deltas:
        if not delta_rows.rows:
            continue
        own = dict(zip(names(delta_rows.slots), zip(*delta_rows.rows, strict=True), strict=True))
        for name in columns:
            values[name] += own.get(name) or [None] * len(delta_rows.rows)
    arrays = [pa.array(values[name], type_) for name, type_ in zip(columns, text_types(slots), strict=True)]
    return pa.Table.from_arrays(arrays, names=columns)
