"""Small deltas are consolidated here, in the process of the worker (ADR 38): the same result as the job of
`engine.spark`, without one, which takes tens of milliseconds however few its rows.

Spark computes with decimals of 38 digits and takes numbers apart that do not fit (`decimal_overflow`). Here every
number is exact, so nothing is taken apart; NaN and infinities cannot be subtracted here either: their groups are
recomputed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any

from pgtrickle.model.flow import Delta, ExtremeDelta, SumDelta
from pgtrickle.pipeline.codec import SCALE
from pgtrickle.pipeline.delta_layout import ROWS, DeltaLayout
from pgtrickle.pipeline.engine.decimal_overflow import EXACT, order_key
from pgtrickle.pipeline.engine.frames import DeltaRows

Rows = Sequence[tuple[Any, ...]]

_NOTHING = Decimal(0).scaleb(-SCALE)  # a total has at least the digits after the point that Spark's has


def consolidate(delta: DeltaRows) -> Delta:
    """The net weight of each key, the change of its sums, and its extreme inserted and deleted values."""
    if not (delta.slots.sums or delta.slots.extremes):
        return _weights(delta.slots, delta.rows)
    groups: dict[str, list[tuple[Any, ...]]] = {}
    for row in delta.rows:
        groups.setdefault(row[1], []).append(row)
    lost: set[str] = set()
    first = 2 + delta.slots.sums
    return Delta(
        [sum(row[0] for row in rows) for rows in groups.values()],
        list(groups),
        tuple(_sum(groups, at, lost) for at in range(2, first)),
        tuple(_extreme(groups.values(), first + 2 * i) for i in range(delta.slots.extremes)),
        frozenset(lost),
    )


def _weights(slots: DeltaLayout, rows: Rows) -> Delta:
    """Rows, or groups without values. Of rows, those whose weights cancel out have not changed."""
    weights: dict[str, int] = {}
    for weight, key in rows:
        weights[key] = weights.get(key, 0) + weight
    if slots == ROWS:
        weights = {key: weight for key, weight in weights.items() if weight}
    return Delta(list(weights.values()), list(weights))


def _sum(groups: dict[str, list[tuple[Any, ...]]], at: int, lost: set[str]) -> SumDelta:
    """One sum of all groups; adds the keys with NaN or an infinity to `lost`."""
    counts: list[int] = []
    totals: list[Decimal | None] = []
    for key, rows in groups.items():
        count, total, is_null = 0, _NOTHING, True
        for row in rows:
            if (text := row[at]) is None:
                continue
            is_null, weight, value = False, row[0], Decimal(text)
            count += weight
            if value.is_finite():
                total = EXACT.add(total, value) if weight > 0 else EXACT.subtract(total, value)
            else:
                lost.add(key)
        counts.append(count)
        totals.append(None if is_null else total)
    return SumDelta(counts, totals)


def _extreme(groups: Collection[Rows], at: int) -> ExtremeDelta:
    """The first value by its order (the column `at`, the text follows it), inserted and deleted, of all groups."""
    inserted = [_first([row for row in rows if row[0] > 0], at) for rows in groups]
    deleted = [_first([row for row in rows if row[0] < 0], at) for rows in groups]
    return ExtremeDelta(inserted, deleted)


def _first(rows: Rows, at: int) -> str | None:
    ordered = [(order_key(row[at]), row[at + 1]) for row in rows if row[at] is not None]
    if not ordered:
        return None
    text: str | None = min(ordered, key=lambda each: (each[0], each[1] is not None, each[1] or ""))[1]
    return text
