"""Delta rows as Arrow tables: equal from rows and from a bulk read, and together with others."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa

from pgtrickle.pipeline.delta_layout import DeltaLayout
from pgtrickle.pipeline.engine.frames import DeltaRows, combine, from_batches, names, text_types

SLOTS = DeltaLayout(1, 1)
ROWS = [(1, "{a}", "1.50", "2", "two"), (-1, "{NULL}", None, None, None), (1, "{}", "-0.000000000000000001", "0", "")]


def batch(rows: Sequence[tuple[object, ...]], slots: DeltaLayout = SLOTS) -> pa.Table:
    """As a bulk read gives it."""
    types = text_types(slots)
    return pa.Table.from_arrays(
        [pa.array([r[i] for r in rows], t) for i, t in enumerate(types)], names=[f"c{i}" for i in range(len(types))]
    )


def test_both_ways_give_one_table() -> None:
    table, _ = combine([DeltaRows(SLOTS, ROWS)], SLOTS)
    assert table.column_names == [*names(SLOTS), "t"] == ["w", "k", "s0", "o0", "x0", "t"]
    assert table.equals(combine([from_batches([batch(ROWS[:1]), batch(ROWS[1:])], SLOTS)], SLOTS)[0])
    assert table.column("s0").to_pylist()[0] == Decimal("1.50")


def test_leaves_of_different_layouts_become_one_table() -> None:
    narrow = from_batches([batch([(1, "{b}")], DeltaLayout())], DeltaLayout())
    wide, _ = combine([DeltaRows(SLOTS, ROWS), narrow, pa.concat_tables([narrow, narrow])], DeltaLayout(2, 2))
    assert wide.column_names == [*names(DeltaLayout(2, 2)), "t"]
    assert wide.column("t").to_pylist() == [0, 0, 0, 1, 2, 2]
    assert wide.column("k").to_pylist() == ["{a}", "{NULL}", "{}", "{b}", "{b}", "{b}"]
    assert wide.column("s1").null_count == len(wide)
    assert wide.column("x1").type == pa.string()
    assert all(column.num_chunks == 1 for column in wide.columns)


def test_rows_and_batches_mix() -> None:
    pair, none = [(1, "{b}"), (-1, "{c}")], DeltaRows(SLOTS, [])
    bulk = from_batches([batch(ROWS)], SLOTS)
    mixed, _ = combine([bulk, DeltaRows(DeltaLayout(), pair), none, DeltaRows(SLOTS, ROWS)], DeltaLayout(2, 2))
    plain, _ = combine(
        [DeltaRows(s, r) for r, s in ((ROWS, SLOTS), (pair, DeltaLayout()), ([], SLOTS), (ROWS, SLOTS))],
        DeltaLayout(2, 2),
    )
    order = [("t", "ascending"), ("k", "ascending")]
    assert mixed.sort_by(order).equals(plain.sort_by(order))


def test_no_rows_keep_their_types() -> None:
    empty = from_batches([], SLOTS)
    assert len(empty) == 0
    assert empty.schema.equals(from_batches([batch(ROWS)], SLOTS).schema)
