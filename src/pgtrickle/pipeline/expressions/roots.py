"""The square root of a quotient, for stddev: rounded at the display scale of the quotient (sqrt_var in numeric.c).

PostgreSQL computes one digit beyond that scale, truncated, and then rounds half away from zero. Here the digit-by-digit
method computes the same digits, one from two digits of the square: neither the root nor the remainder has more than 38
digits.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.pipeline.expressions.division import DIGITS, power, quotient_shape
from pgtrickle.pipeline.expressions.entries import Entry
from pgtrickle.pipeline.expressions.nodes import Call, Node
from pgtrickle.pipeline.expressions.numbers import own_scale
from pgtrickle.pipeline.expressions.types import MOST_DIGITS, Column, Functions, PgType
from pgtrickle.pipeline.expressions.values import Value, scale

_GUARDED = DIGITS + 1  # digits after the point of the root that are computed
_PAIRS = (MOST_DIGITS - DIGITS) // 2 + _GUARDED  # digits of the root, each from two of the square
_INTEGER = f"decimal({MOST_DIGITS},0)"


def root_of_quotient(node: Node) -> Node:
    return Call(_ENTRY, (node,), quotient_shape([node.type]))


def _root(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    x = a[0].column
    digits = f.replace(x.cast(f"decimal({MOST_DIGITS},{DIGITS})").cast("string"), f.lit("."), f.lit(""))
    padded = f.rpad(f.lpad(digits, MOST_DIGITS, "0"), 2 * _PAIRS, "0")
    start = f.struct(_zero(f).alias("root"), _zero(f).alias("rest"))
    places = f.sequence(f.lit(1), f.lit(2 * _PAIRS), f.lit(2))

    def further(state: Column, place: Column) -> Column:
        root, pair = state.getField("root"), padded.substr(place, f.lit(2)).cast("decimal(2,0)")
        rest = (state.getField("rest") * f.lit(100) + pair).cast(_INTEGER)
        twice = (root * f.lit(20)).cast(_INTEGER)
        fitting = f.filter(f.sequence(f.lit(1), f.lit(9)), lambda d: ((twice + d) * d).cast(_INTEGER) <= rest)
        digit = f.size(fitting)
        return f.struct(
            (root * f.lit(10) + digit).cast(_INTEGER).alias("root"),
            (rest - (twice + digit) * digit).cast(_INTEGER).alias("rest"),
        )

    shown = scale(f, a[0])
    scaled_root = f.aggregate(places, start, further, lambda state: _rounded(f, state.getField("root"), shown))
    return f.when(x.isNotNull(), (scaled_root * power(f, -_GUARDED)).cast(t.decimal))


def _zero(f: Functions) -> Column:
    return f.lit(0).cast(_INTEGER)


def _rounded(f: Functions, root: Column, shown: Column) -> Column:
    units = f.array(*(f.lit(str(10 ** (_GUARDED - n))).cast(f"decimal({_GUARDED + 1},0)") for n in range(DIGITS + 1)))
    unit = f.element_at(units, shown + 1)
    up = (root + f.call_function("div", unit, f.lit(2)).cast(_INTEGER)).cast(_INTEGER)
    return (up - up % unit).cast(_INTEGER)


_ENTRY = Entry("function", "root", ("numeric",), "numeric", _root, quotient_shape, own_scale, repeats=True)
