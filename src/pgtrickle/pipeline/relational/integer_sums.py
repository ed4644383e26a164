"""Exact sums of numerics as sums of integers.

An unscaled value is added up in two parts, each of which fits a bigint for 2^31 rows: the number of multiples of 2^32,
and the rest. Rows whose value exceeds a bigint are added up as decimals.
"""

from __future__ import annotations

from decimal import Decimal

from pgtrickle.pipeline.expressions.translate import column, native
from pgtrickle.pipeline.expressions.types import MOST_DIGITS, Column, Functions
from pgtrickle.pipeline.expressions.unscaled import LONG, Unscaled, unscaled
from pgtrickle.pipeline.relational.algebra import AggregateCall

_BITS = 32
_NEAR = 1 << 30  # with so few multiples of 2^32 the total is a bigint


def total(f: Functions, call: AggregateCall) -> Column | None:
    """The sum as a decimal; None: it is not a sum of numerics, or not all of its argument can be an integer."""
    if call.name != "sum" or call.is_distinct or call.arguments[0].type.name != "numeric":
        return None
    made = unscaled(f, call.arguments[0])
    if made is None:
        return None
    value = made.column if call.where is None else f.when(column(call.where), made.column)
    multiples = f.sum(f.shiftright(value, _BITS))
    rest = f.sum(value.bitwiseAND(f.lit((1 << _BITS) - 1).cast(LONG)))
    small = (multiples * f.lit(1 << _BITS).cast(LONG) + rest).cast("decimal(19,0)")
    large = multiples.cast("decimal(19,0)") * f.lit(Decimal(1 << _BITS)) + rest.cast("decimal(19,0)")
    whole = f.when(multiples.between(-_NEAR, _NEAR), small).otherwise(large)
    shifted = _shifted(f, whole, made.scale)
    return shifted if not made.is_partial else _with_others(f, shifted, call, made)


def _shifted(f: Functions, whole: Column, scale: int) -> Column:
    if not scale:
        return whole
    return whole * f.lit(Decimal(1).scaleb(-scale)).cast(f"decimal({scale + 1},{scale})")


def _with_others(f: Functions, sum_: Column, call: AggregateCall, made: Unscaled) -> Column:
    """Adds the rows whose values exceed a bigint."""
    argument = call.arguments[0]
    exceeds = made.column.isNull()
    if call.where is not None:
        exceeds = column(call.where) & exceeds
    others = f.sum(f.when(exceeds, native(argument)[0].cast(argument.type.decimal)))
    wide = f"decimal({MOST_DIGITS},{made.scale})"
    both = sum_.cast(wide) + others.cast(wide)
    return f.when(others.isNull(), sum_.cast(wide)).when(sum_.isNull(), others.cast(wide)).otherwise(both.cast(wide))
