"""Numbers that decimal(38,18) cannot represent.

For sums, the driver adds them up and adds the totals to Spark's result; the remaining numbers cannot overflow, however
they are grouped. For extremes, all numbers of the table are replaced by their ranks, because Spark only compares them.
NaN and infinities cannot be subtracted: their groups are recomputed.

The check is here, because Arrow's conversions silently wrap around for some numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Clamped, Context, Decimal, Inexact, InvalidOperation, Overflow, Rounded, Subnormal
from typing import TYPE_CHECKING

from pgtrickle.model.flow import Delta, SumDelta
from pgtrickle.pipeline.codec import PRECISION, SCALE

if TYPE_CHECKING:
    import pyarrow as pa

FEW = 50  # numbers up to which Python is faster than Arrow
_ZEROS = r"(\.(?:[0-9]*[1-9])?)0+$"  # trailing zeros of a fraction
# A numeric has at most 131,072 digits before the point and 16,383 after it; PostgreSQL's sum of larger numbers fails as
# well.
EXACT = Context(prec=200_000, traps=[Clamped, Inexact, InvalidOperation, Overflow, Rounded, Subnormal])
_AFTER_ALL, _BEFORE_ALL = "NaN", "-NaN"  # as an order: see `codec.order`


@dataclass(frozen=True, slots=True)
class OverflowTotals:
    """The numbers that were removed from the input of a job, by table number and group key."""

    totals: dict[tuple[int, int], dict[str, Decimal]] = field(default_factory=dict)  # slot and table; then the key
    lost: dict[int, set[str]] = field(default_factory=dict)

    def back(self, table: int, delta: Delta) -> Delta:
        """Spark's result for a table, with the removed numbers added."""
        sums = list(delta.sums)
        for (slot, of), removed in self.totals.items():
            if of == table:
                pairs = zip(sums[slot].totals, delta.keys, strict=True)
                totals = [EXACT.add(s or Decimal(0), removed[k]) if k in removed else s for s, k in pairs]
                sums[slot] = SumDelta(sums[slot].rows, totals)
        return replace(delta, sums=tuple(sums), lost=frozenset(self.lost.get(table, ())))

    def take(self, slot: int, table: int, key: str, weight: int, text: str) -> None:
        value = Decimal(text)
        if not value.is_finite():
            self.lost.setdefault(table, set()).add(key)
            return
        totals = self.totals.setdefault((slot, table), {})
        before = totals.get(key, Decimal(0))
        totals[key] = EXACT.add(before, value) if weight > 0 else EXACT.subtract(before, value)


def fitted(arrays: Mapping[str, pa.Array]) -> tuple[pa.Table, OverflowTotals]:
    """Delta rows (see `frames`: w, k, s0.., o0, x0.., and t, the table number) with numbers instead of their texts, and
    the numbers that do not fit.

    Each of n summed numbers has so few digits that the sum of n such numbers fits.
    """
    import pyarrow as pa

    overflow, columns = OverflowTotals(), dict(arrays)
    for name, texts in arrays.items():
        if name[0] == "s":
            columns[name], unfit = _numbers(texts, PRECISION - SCALE - len(str(len(texts))))
            if len(unfit):
                removed_columns = (arrays[n].take(unfit).to_pylist() for n in ("t", "k", "w", name))
                for table, key, weight, text in zip(*removed_columns, strict=True):
                    overflow.take(int(name[1:]), table, key, weight, text)
        elif name[0] == "o":
            columns[name], unfit = _numbers(texts, PRECISION - SCALE)
            if len(unfit):
                tables = set(arrays["t"].take(unfit).to_pylist())
                columns[name], _ = _numbers(_ranked(texts, arrays["t"], tables), PRECISION - SCALE)
    return pa.Table.from_arrays(list(columns.values()), names=list(columns)), overflow


def _numbers(texts: pa.Array, whole: int) -> tuple[pa.Array, pa.Array]:
    """The numbers as decimals, with 0 for those with too many digits; and the positions of the latter."""
    import pyarrow as pa
    import pyarrow.compute as pc

    fits = rf"^-?[0-9]{{1,{whole}}}(?:\.[0-9]{{0,{SCALE}}})?$"
    type_ = pa.decimal128(PRECISION, SCALE)
    if len(texts) < FEW:
        values = texts.to_pylist()
        if all(v is None or re.match(fits, v) for v in values):
            return pa.array([None if v is None else Decimal(v) for v in values], type_), pa.array([], pa.uint64())
    if pc.all(pc.match_substring_regex(texts, pattern=fits)).as_py() is not False:  # NULLs do not count
        return texts.cast(type_), pa.array([], pa.uint64())
    trimmed = pc.replace_substring_regex(texts, pattern=_ZEROS, replacement=r"\1")
    is_unfit = pc.fill_null(pc.invert(pc.match_substring_regex(trimmed, pattern=fits)), False)
    return pc.if_else(is_unfit, "0", trimmed).cast(type_), pc.indices_nonzero(is_unfit)


def _ranked(texts: pa.Array, owners: pa.Array, tables: set[int]) -> pa.Array:
    """The numbers of these tables replaced by their ranks, as texts; those of others unchanged."""
    import pyarrow as pa

    numbers = list(zip(texts.to_pylist(), owners.to_pylist(), strict=True))
    keys = {text: order_key(text) for text, table in numbers if table in tables and text is not None}
    ranks = {key: str(rank) for rank, key in enumerate(sorted(set(keys.values())))}
    ranked = [ranks[keys[text]] if table in tables and text is not None else text for text, table in numbers]
    return pa.array(ranked, pa.string())


def order_key(text: str) -> tuple[int, Decimal]:
    if text in (_AFTER_ALL, _BEFORE_ALL):
        return (1 if text == _AFTER_ALL else -1), Decimal(0)
    return 0, Decimal(text)
