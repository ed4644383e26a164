"""Numbers that decimal(38,18) does not hold: none is changed on its way, and no sum of what travels can overflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from pgtrickle.model.flow import Delta, SumDelta
from pgtrickle.pipeline.delta_layout import DeltaLayout
from pgtrickle.pipeline.engine.decimal_overflow import FEW
from pgtrickle.pipeline.engine.frames import DeltaRows, combine

SUM, LEAST = DeltaLayout(1), DeltaLayout(0, 1)
LIMIT = Decimal(10) ** 20
EXACT = Context(prec=1000)


def netted(inputs: Sequence[Sequence[tuple[Any, ...]]]) -> list[dict[str, Decimal]]:
    """What Spark does with sums, and what comes of it: by table, the total of each key."""
    table, overflow = combine([DeltaRows(SUM, rows) for rows in inputs], SUM)
    found: list[dict[str, Decimal]] = [{} for _ in inputs]
    for w, k, value, t in zip(*(table.column(n).to_pylist() for n in ("w", "k", "s0", "t")), strict=True):
        if value is not None:
            found[t][k] = EXACT.add(found[t].get(k, Decimal(0)), value if w > 0 else -value)
    assert all(abs(total) < LIMIT for totals in found for total in totals.values())
    deltas = [overflow.back(t, of_sum(totals)) for t, totals in enumerate(found)]
    return [
        {key: total for key, total in zip(d.keys, d.sums[0].totals, strict=True) if total is not None} for d in deltas
    ]


def of_sum(totals: Mapping[str, Decimal]) -> Delta:
    ones = [1] * len(totals)
    return Delta(ones, list(totals), (SumDelta(ones, list(totals.values())),))


@pytest.mark.parametrize("count", [1, FEW])
def test_trailing_zeros_are_no_digits(count: int) -> None:
    table, overflow = combine([DeltaRows(SUM, [(1, "{}", "1." + "0" * 100)] * count)], SUM)
    assert table.column("s0").to_pylist() == [Decimal(1)] * count
    assert not overflow.totals


@pytest.mark.parametrize(
    "value",
    [
        "0.0000000000000000001",
        "123456789012345678901",
        "721312493602961829630",
        "1" + "0" * 30,
        "-" + "9" * 5000 + ".5",
    ],
)
def test_a_number_that_does_not_fit_stays_here_and_counts_as_a_value(value: str) -> None:
    rows = [(1, "{a}", value), (1, "{a}", "2.5"), (-1, "{b}", value)]
    table, _ = combine([DeltaRows(SUM, rows)], SUM)
    assert table.column("s0").to_pylist() == [Decimal(0), Decimal("2.5"), Decimal(0)]
    (totals,) = netted([rows])
    assert Fraction(totals["{a}"]) == Fraction(Decimal(value)) + Fraction(5, 2)
    assert Fraction(totals["{b}"]) == -Fraction(Decimal(value))


def test_no_sum_is_changed_on_its_way() -> None:
    """Arrow alone turns 721312493602961829630 into 40747759761084902703.25..., without an error."""
    random = Random(1)
    for _ in range(60):
        deltas: list[list[tuple[Any, ...]]] = []
        for _ in range(random.randint(1, 3)):
            rows: list[tuple[Any, ...]] = []
            for _ in range(random.randint(1, 120)):
                digits = "".join(random.choice("0123456789") for _ in range(random.choice((3, 18, 20, 40, 80))))
                cut = random.randint(1, len(digits))
                text = random.choice(("", "-")) + digits[:cut] + ("." + digits[cut:] if cut < len(digits) else "")
                rows.append((random.choice((1, -1, 7, -7)), random.choice("abc"), random.choice((text, text, None))))
            deltas.append(rows)
        wanted: list[dict[str, Fraction]] = []
        for rows in deltas:
            sums: dict[str, Fraction] = {}
            for w, k, text in rows:
                if text is not None:
                    sums[k] = sums.get(k, Fraction(0)) + (1 if w > 0 else -1) * Fraction(Decimal(text))
            wanted.append(sums)
        assert [{k: Fraction(v) for k, v in totals.items()} for totals in netted(deltas)] == wanted


@pytest.mark.parametrize("count", [1, 9, 10, 11, 99, 100, 5000])
def test_what_travels_cannot_overflow_a_sum(count: int) -> None:
    largest = ["9" * digits for digits in range(1, 25)]
    for value in largest:
        assert netted([[(1, "{}", value)] * count]) == [{"{}": EXACT.multiply(Decimal(value), Decimal(count))}]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_groups_of_what_is_no_number_are_named(value: str) -> None:
    _, overflow = combine(
        [DeltaRows(SUM, [(1, "{a}", "1")]), DeltaRows(SUM, [(1, "{b}", "1"), (-1, "{c}", value)])], SUM
    )
    nothing = of_sum({})
    assert [overflow.back(t, nothing).lost for t in (0, 1)] == [frozenset(), {"{c}"}]


def test_extremes_that_do_not_fit_are_ranked() -> None:
    texts = ["-NaN", "-Infinity", "-" + "9" * 30, "-1", "0", "0." + "0" * 30 + "1", "0." + "0" * 30 + "2", "1", "1.0"]
    texts += ["9" * 19, "9" * 21, "Infinity", "NaN"]
    places = list(range(len(texts)))
    Random(1).shuffle(places)
    rows = [(1, "{}", texts[p], texts[p]) for p in places] + [(1, "{}", None, None)]
    table, overflow = combine([DeltaRows(LEAST, [(1, "{}", "12.5", "12.5")]), DeltaRows(LEAST, rows)], LEAST)
    assert not overflow.lost
    orders = table.column("o0").to_pylist()
    assert orders[0] == Decimal("12.5")  # of a table whose numbers fit
    assert orders[-1] is None
    by_text = dict(zip(table.column("x0").to_pylist()[1:-1], orders[1:-1], strict=True))
    assert sorted(texts, key=lambda t: by_text[t]) == texts
    assert by_text["1"] == by_text["1.0"]
    assert len(set(by_text.values())) == len(texts) - 1
