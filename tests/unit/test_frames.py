"""Leaf rows as Arrow tables: equal from rows and from a bulk read, and never rounded."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from pgtrickle.errors import InexactValueError
from pgtrickle.pipeline.frames import MANY, Rows, from_arrow, from_rows, names, text_types, together
from pgtrickle.pipeline.leaves import Slots

SLOTS = Slots(1, 1)
ROWS = [(1, "{a}", "1.50", "2", "two"), (-1, "{NULL}", None, None, None), (1, "{}", "-0.000000000000000001", "0", "")]
UNFIT = [
    "NaN",
    "Infinity",
    "-Infinity",
    "0.0000000000000000001",
    "123456789012345678901",
    "721312493602961829630",
    "1" + "0" * 30,
]


def as_text(rows: list[tuple[object, ...]]) -> pa.Table:
    types = text_types(SLOTS)
    return pa.Table.from_arrays(
        [pa.array([r[i] for r in rows], t) for i, t in enumerate(types)], names=[f"c{i}" for i in range(len(types))]
    )


def test_both_ways_give_one_table() -> None:
    table = from_rows(ROWS, SLOTS)
    assert table.column_names == names(SLOTS) == ["w", "k", "s0", "o0", "x0"]
    assert table.equals(from_arrow(as_text(list(ROWS)), SLOTS))
    assert table.column("s0").to_pylist()[0] == Decimal("1.50")


def test_trailing_zeros_are_no_digits() -> None:
    row = (1, "{}", "1." + "0" * 100, "1", "1")
    assert from_rows([row], SLOTS).column("s0").to_pylist() == [Decimal(1)]


@pytest.mark.parametrize("value", UNFIT)
def test_number_that_does_not_fit_is_refused_both_ways(value: str) -> None:
    row = (1, "{}", value, None, None)
    with pytest.raises(InexactValueError, match=r"does not fit decimal\(38,18\)"):
        from_rows([row], SLOTS)
    with pytest.raises(InexactValueError, match=r"does not fit decimal\(38,18\)"):
        from_arrow(as_text([row]), SLOTS)


def many(rows: list[tuple[object, ...]], slots: Slots) -> pa.Table:
    """As from_rows does it where there are more."""
    return from_rows([*rows, *([(1, "{}", "1.50", None, None)] * MANY)], slots).slice(0, len(rows))


def test_no_number_is_changed_on_its_way() -> None:
    """Arrow alone turns 721312493602961829630 into 40747759761084902703.25..., without an error."""
    random = Random(1)
    for _ in range(3000):
        digits = "".join(random.choice("0123456789") for _ in range(random.randint(1, 80)))
        cut = random.randint(1, len(digits))
        value = random.choice(("", "-")) + digits[:cut] + ("." + digits[cut:] if cut < len(digits) else "")
        whole, _, fraction = value.lstrip("-").partition(".")
        fits = len(whole) <= 20 and len(fraction.rstrip("0")) <= 18
        row = (1, "{}", value, None, None)
        nothing = (1, "{}", None, None, None)
        for table_of in (from_rows, lambda rows, slots: from_arrow(as_text(rows), slots), many):
            try:
                assert table_of([row, nothing], SLOTS).column("s0").to_pylist() == [Decimal(value), None]
                assert fits
            except InexactValueError:
                assert not fits


def test_leaves_of_different_layouts_become_one_table() -> None:
    narrow = from_rows([(1, "{b}")], Slots())
    wide = together([from_rows(ROWS, SLOTS), narrow, pa.concat_tables([narrow, narrow])], Slots(2, 2))
    assert wide.column_names == [*names(Slots(2, 2)), "t"]
    assert wide.column("t").to_pylist() == [0, 0, 0, 1, 2, 2]
    assert wide.column("k").to_pylist() == ["{a}", "{NULL}", "{}", "{b}", "{b}", "{b}"]
    assert wide.column("s1").null_count == len(wide)
    assert wide.column("x1").type == pa.string()
    assert all(column.num_chunks == 1 for column in wide.columns)


def test_rows_that_are_yet_to_be_converted_are_the_same() -> None:
    pair, none = [(1, "{b}"), (-1, "{c}")], Rows(SLOTS, [])
    mixed = together([from_rows(ROWS, SLOTS), Rows(Slots(), pair), none, Rows(SLOTS, ROWS)], Slots(2, 2))
    plain = together(
        [from_rows(r, s) for r, s in ((ROWS, SLOTS), (pair, Slots()), ([], SLOTS), (ROWS, SLOTS))], Slots(2, 2)
    )
    order = [("t", "ascending"), ("k", "ascending")]
    assert mixed.sort_by(order).equals(plain.sort_by(order))
    with pytest.raises(InexactValueError):
        together([Rows(SLOTS, [(1, "{}", "1e99", None, None)])], SLOTS)


def test_no_rows_keep_their_types() -> None:
    empty = from_rows([], SLOTS)
    assert len(empty) == 0
    assert empty.schema.equals(from_rows(ROWS, SLOTS).schema)
