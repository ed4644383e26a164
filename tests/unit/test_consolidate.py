"""Small deltas, netted by the worker. `tests/spark/test_consolidate.py` compares it with Spark and with PostgreSQL."""

from __future__ import annotations

from decimal import Decimal

import pytest

from pgtrickle.model.flow import Delta, ExtremeDelta, SumDelta
from pgtrickle.pipeline.delta_layout import ROWS, DeltaLayout
from pgtrickle.pipeline.engine.consolidate import consolidate
from pgtrickle.pipeline.engine.frames import DeltaRows

SUM, LEAST = DeltaLayout(1), DeltaLayout(0, 1)


def test_rows_that_cancel_out_are_dropped_and_groups_to_read_again_are_not() -> None:
    rows = [(1, "{a}"), (-1, "{b}"), (-1, "{a}"), (1, "{c}"), (1, "{c}")]
    assert consolidate(DeltaRows(ROWS, rows)) == Delta([-1, 2], ["{b}", "{c}"])
    every = DeltaLayout(every=True)
    assert consolidate(DeltaRows(every, rows)) == Delta([0, -1, 2], ["{a}", "{b}", "{c}"])


@pytest.mark.parametrize("layout", [ROWS, DeltaLayout(every=True), SUM, LEAST, DeltaLayout(2, 3)])
def test_an_empty_delta_has_its_columns(layout: DeltaLayout) -> None:
    found = consolidate(DeltaRows(layout, []))
    assert (len(found), len(found.sums), len(found.extremes)) == (0, layout.sums, layout.extremes)


def test_values_are_counted_and_added_with_their_sign() -> None:
    rows = [(2, "{a}", "3.00"), (-1, "{a}", "0.5"), (1, "{a}", None), (1, "{b}", None)]
    found = consolidate(DeltaRows(SUM, rows))
    assert found == Delta([2, 1], ["{a}", "{b}"], (SumDelta([1, 0], [Decimal("2.5"), None]),))


def test_a_total_has_the_digits_of_a_decimal_of_spark() -> None:
    """`recompute` cuts them to the scale of the sum; a shorter total would lack digits."""
    (total,) = consolidate(DeltaRows(SUM, [(1, "{}", "3")])).sums[0].totals
    assert format(total, "f") == "3." + 18 * "0"


def test_numbers_of_any_size_are_exact() -> None:
    large, fine = "9" * 5_000, "0." + "0" * 5_000 + "1"
    (total,) = consolidate(DeltaRows(SUM, [(1, "{}", large), (1, "{}", fine), (-1, "{}", large)])).sums[0].totals
    assert total == Decimal(fine)


def test_groups_with_nan_or_an_infinity_are_lost() -> None:
    rows = [(1, "{a}", "NaN"), (1, "{a}", "2"), (-1, "{b}", "-Infinity"), (1, "{c}", "1")]
    found = consolidate(DeltaRows(SUM, rows))
    assert found.lost == {"{a}", "{b}"}
    assert found.sums == (SumDelta([2, -1, 1], [Decimal(2), Decimal(0), Decimal(1)]),)


def test_extremes_are_by_number_then_by_text() -> None:
    rows = [
        (1, "{a}", "10", "ten"),
        (1, "{a}", "9", "nine"),
        (1, "{a}", "9.0", "NINE"),
        (-1, "{a}", "NaN", "no number"),
        (-1, "{a}", "Infinity", "infinite"),
        (1, "{b}", "-NaN", "before all"),
        (1, "{b}", "-Infinity", "after it"),
        (-1, "{b}", None, None),
    ]
    found = consolidate(DeltaRows(LEAST, rows))
    assert found.extremes == (ExtremeDelta(["NINE", "before all"], ["infinite", None]),)
