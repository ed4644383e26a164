"""Division of numerics with PostgreSQL's number of digits (select_div_scale and div_var in numeric.c).

A quotient has at least 16 significant digits, counted in groups of four, and at least the display scale of either
operand. So its display scale depends on the values; it is rounded half away from zero at that scale. Spark's division
rounds to a scale that depends on the types. Here Spark divides twice: first for the integer part; then the remainder,
in units of the last displayed digit, so that all displayed digits are integer digits, followed by 17 further digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from pgtrickle.pipeline.expressions.failures import DIVISION_BY_ZERO, inexact, refused
from pgtrickle.pipeline.expressions.types import MOST_DIGITS, Column, Functions, PgType
from pgtrickle.pipeline.expressions.values import Value, scale

DIGITS = 24  # after the point of a quotient
_WHOLE = MOST_DIGITS - DIGITS
_GROUP = 4  # PostgreSQL's numerics have base-10,000 digits
_SIGNIFICANT = 16
_MOVED = 16  # digits by which the remainder is shifted; the divisor is shifted by the rest, so that both fit
_DIVISOR_DIGITS = 26  # after the point of the shifted divisor, at most
_UNIT_DIGITS = 17  # after the point of a remainder in units of the last displayed digit
_SURE = 16  # for a divisor with at most so many digits, 17 digits decide whether the quotient is a tie
_HALF = Decimal("0.5")


def quotient_shape(_types: Sequence[PgType]) -> PgType:
    return PgType("numeric", _WHOLE, DIGITS, fixed=False)


def quotient_scale(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    """select_div_scale: from the weights and values of the first base-10,000 digits."""
    whole = _groups(max(MOST_DIGITS - v.type.scale for v in a))
    fraction = _groups(max(v.type.scale for v in a))
    texts = [_aligned(f, v, whole, fraction).alias(n) for n, v in zip("xy", a, strict=True)]

    def weight(row: Column) -> Column:
        (place, digit), (other_place, other_digit) = (_leading(f, row.getField(n), whole) for n in "xy")
        return other_place - place - f.when(digit <= other_digit, f.lit(1)).otherwise(f.lit(0))

    quotient_weight = f.transform(f.array(f.struct(*texts)), weight).getItem(0)
    return f.greatest(f.lit(_SIGNIFICANT) - quotient_weight * _GROUP, scale(f, a[0]), scale(f, a[1]), f.lit(0))


def quotient(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    x, y = a[0].column, a[1].column
    known = x.isNotNull() & y.isNotNull()
    scale_and_rest = f.struct(quotient_scale(f, a, t).alias("shown"), (x % y).alias("rest"))
    divided = f.transform(
        f.array(scale_and_rest), lambda o: _divided(f, a, o.getField("shown"), o.getField("rest"))
    ).getItem(0)
    return f.when(known & (y == 0), refused(f, DIVISION_BY_ZERO)).when(known, divided)


def _divided(f: Functions, a: Sequence[Value], shown: Column, rest: Column) -> Column:
    """x / y, rounded half away from zero at `shown` digits. `rest` is the remainder after the integer part."""
    x, y = a[0].column, a[1].column
    whole = (x - rest) / y
    moved = f.least(shown, f.lit(_MOVED))
    places = max(max(v.type.scale for v in a) - _MOVED, 0)
    digits = min(a[1].type.scale + DIGITS - _MOVED, _DIVISOR_DIGITS)
    divisor = _times_ten_to(f, y, moved - shown).cast(f"decimal({MOST_DIGITS},{digits})")
    divisor = f.nullif(divisor, f.lit(0))  # it is 0 if it lost digits: then the quotient does not fit, see _rounded()
    half = _times_ten_to(f, rest, moved).cast(f"decimal({MOST_DIGITS},{places})") * f.lit(_HALF) / divisor
    # Up to 2 * 10^20, too large for the type of the quotient.
    units = half.cast(f"decimal({MOST_DIGITS},{_UNIT_DIGITS})") * 2
    return f.transform(
        f.array(f.struct(whole.alias("whole"), units.alias("units"))), lambda o: _rounded(f, a[1], shown, o)
    ).getItem(0)


def _rounded(f: Functions, divisor: Value, shown: Column, parts: Column) -> Column:
    """`units`: the remainder in units of the last displayed digit, rounded at the 17th digit after the point. If it is
    exactly half a unit, the exact value may be smaller, if the divisor has more digits."""
    whole, units = parts.getField("whole"), parts.getField("units")
    overflow = inexact(f, f"a quotient does not fit decimal({MOST_DIGITS},{DIGITS}) exactly")
    outside = (shown > DIGITS) | (f.abs(whole) >= power(f, _WHOLE))
    if divisor.type.scale > _DIVISOR_DIGITS - (DIGITS - _MOVED):
        outside |= scale(f, divisor) + shown > _DIVISOR_DIGITS + _MOVED
    if divisor.type.whole + divisor.type.scale > _SURE:
        digits = _times_ten_to(f, divisor.column, scale(f, divisor)).try_cast(f"decimal({_SURE},0)")
        outside |= digits.isNull() & (f.abs(units % 1) == f.lit(_HALF))
    decimal = f"decimal({MOST_DIGITS},{DIGITS})"
    fraction = _times_ten_to(f, f.round(units, 0), -shown).cast(decimal)
    return f.when(outside, overflow).otherwise((whole.cast(decimal) + fraction).cast(decimal))


def power(f: Functions, exponent: int) -> Column:
    """10^exponent."""
    digits = max(exponent, 0) + 1 + max(-exponent, 0)
    return f.lit(f"{Decimal(1).scaleb(exponent):f}").cast(f"decimal({min(digits, MOST_DIGITS)},{max(-exponent, 0)})")


def _times_ten_to(f: Functions, x: Column, exponent: Column) -> Column:
    """The text of x * 10^exponent."""
    return f.concat(x.cast("string"), f.lit("e"), exponent.cast("string"))


def _groups(digits: int) -> int:
    """The number of digits, rounded up to whole groups of four."""
    return -(-digits // _GROUP) * _GROUP


def _aligned(f: Functions, value: Value, whole: int, fraction: int) -> Column:
    """All digits, padded with zeros on both sides, so that groups of four are aligned."""
    digits = f.translate(value.column.cast("string"), "-.", "")
    return f.rpad(f.lpad(digits, whole + value.type.scale, "0"), whole + fraction, "0")


def _leading(f: Functions, digits: Column, whole: int) -> tuple[Column, Column]:
    """Number and text of the first nonzero group; for zero, the group before the point."""
    at = f.regexp_instr(digits, f.lit("[1-9]"))
    group = f.shiftright(f.when(at == 0, f.lit(whole)).otherwise(at) + 3, 2)
    return group, digits.substr(group * _GROUP - 3, f.lit(_GROUP))
