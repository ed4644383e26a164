"""Integers, numerics and floats in Spark with PostgreSQL's results.

Integers rely on ANSI mode for overflow and division by zero. Numerics rely on `decimalOperations.allowPrecisionLoss`
being off: otherwise Spark silently reduces the scale to fit the precision. Floats are IEEE in both engines; overflow
and underflow of finite numbers, which PostgreSQL refuses, are checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.failures import DIVISION_BY_ZERO, OUT_OF_RANGE, inexact, refused
from pgtrickle.pipeline.expressions.types import (
    DIGITS_OF_A_SCALE,
    MOST_DIGITS,
    SCALE,
    WHOLE,
    Column,
    Functions,
    PgType,
    spark_type,
)
from pgtrickle.pipeline.expressions.values import Build, Value, bind, scale

INT_OPERATORS: dict[str, Build] = {
    "+": lambda _f, a, t: (a[0].column + a[1].column).cast(spark_type(t)),
    "-": lambda _f, a, t: (a[0].column - a[1].column).cast(spark_type(t)),
    "*": lambda _f, a, t: (a[0].column * a[1].column).cast(spark_type(t)),
    "/": lambda f, a, t: f.call_function("div", a[0].column, a[1].column).cast(spark_type(t)),
    "%": lambda _f, a, t: (a[0].column % a[1].column).cast(spark_type(t)),
}


# Numerics. `whole` and `scale` of a result bound its digits; a value with more than 38 digits fails.


def sum_shape(types: Sequence[PgType]) -> PgType:
    left, right = types
    digits = max(left.scale, right.scale)
    return _numeric(max(left.whole, right.whole) + 1, digits, left.fixed and right.fixed)


def product_shape(types: Sequence[PgType]) -> PgType:
    left, right = types
    fixed = left.fixed and right.fixed
    digits = left.scale + right.scale
    if fixed and digits >= MOST_DIGITS:
        raise SparkUnsupportedError(
            f"the product of numerics with {left.scale} and {right.scale} digits after the point"
        )
    most = (
        SCALE if max(left.scale, right.scale) <= SCALE else max(left.scale, right.scale) + 4
    )  # an operand is a quotient
    return _numeric(left.whole + right.whole, digits if fixed else min(digits, most), fixed)


def remainder_shape(types: Sequence[PgType]) -> PgType:
    left, right = types
    return _numeric(left.whole, max(left.scale, right.scale), left.fixed and right.fixed)


def same_shape(types: Sequence[PgType]) -> PgType:
    """The widest of several types; `fixed` if all have the same fixed scale."""
    digits = max(t.scale for t in types)
    return _numeric(max(t.whole for t in types), digits, all(t.fixed and t.scale == digits for t in types))


def whole_shape(types: Sequence[PgType]) -> PgType:
    """Rounded to an integer, which may have one more digit."""
    return _numeric(types[0].whole + 1, 0, True)


def _numeric(whole: int, digits: int, fixed: bool) -> PgType:
    return PgType("numeric", min(whole, MOST_DIGITS - digits), digits, fixed)


def larger_scale(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.greatest(scale(f, a[0]), scale(f, a[1]))


def added_scale(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return scale(f, a[0]) + scale(f, a[1])


def own_scale(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return scale(f, a[0])


def numeric_sum(_f: Functions, a: Sequence[Value], t: PgType) -> Column:
    return (a[0].column.cast(t.decimal) + a[1].column.cast(t.decimal)).cast(t.decimal)


def numeric_difference(_f: Functions, a: Sequence[Value], t: PgType) -> Column:
    return (a[0].column.cast(t.decimal) - a[1].column.cast(t.decimal)).cast(t.decimal)


def numeric_negated(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    """By subtraction: Spark's negation and abs() silently round a decimal to 34 digits."""
    return (f.lit(0).cast(t.decimal) - a[0].column).cast(t.decimal)


def numeric_absolute(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    return f.when(a[0].column < 0, numeric_negated(f, a, t)).otherwise(a[0].column)


def numeric_remainder(_f: Functions, a: Sequence[Value], t: PgType) -> Column:
    return (a[0].column % a[1].column).cast(t.decimal)


def numeric_product(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    left, right = a
    if left.type.scale + right.type.scale <= t.scale:
        return (left.column * right.column).cast(t.decimal)
    return bind(f, a, lambda bound: _long_product(f, bound, t))


def _long_product(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    left, right = a
    # The scale of the product is divided between the factors: five divisions are tried, or one if a scale is fixed.
    result = inexact(f, f"a product of numerics has more than {t.scale} digits after the point")
    steps = [round(t.scale * share) for share in (1, 0.78, 0.5, 0.22, 0)]
    steps = [left.type.scale] if left.type.fixed else [t.scale - right.type.scale] if right.type.fixed else steps
    for digits in steps:
        fits = (scale(f, left) <= digits) & (scale(f, right) <= t.scale - digits)
        narrow = left.column.cast(f"decimal({MOST_DIGITS},{digits})")
        product = narrow * right.column.cast(f"decimal({MOST_DIGITS},{t.scale - digits})")
        result = f.when(fits, product.cast(t.decimal)).otherwise(result)
    return f.when(left.column.isNotNull() & right.column.isNotNull(), result)


def rounded(digits: int, *, truncate: bool) -> tuple[Callable[[Sequence[PgType]], PgType], Build]:
    """Both engines round half away from zero; truncation subtracts the remainder."""
    shown = max(digits, 0)

    def shape(types: Sequence[PgType]) -> PgType:
        return _numeric(types[0].whole + 1, shown, True)

    def build(f: Functions, a: Sequence[Value], t: PgType) -> Column:
        if digits >= a[0].type.scale:
            return a[0].column.cast(t.decimal)
        if -digits > a[0].type.whole:
            return f.when(a[0].column.isNotNull(), f.lit(0)).cast(t.decimal)
        if not truncate:
            return f.round(a[0].column, digits).cast(t.decimal)
        unit = f.lit(Decimal(1).scaleb(-digits)).cast(f"decimal({MOST_DIGITS - 1},{shown})")
        return (a[0].column - a[0].column % unit).cast(t.decimal)

    return shape, build


def numeric_floor(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    return f.floor(a[0].column).cast(t.decimal)


def numeric_ceil(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    return f.ceil(a[0].column).cast(t.decimal)


def numeric_sign(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    x = a[0].column
    return f.when(x > 0, f.lit(1)).when(x < 0, f.lit(-1)).when(x == 0, f.lit(0)).cast(t.decimal)


def display_scale(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.when(a[0].column.isNotNull(), scale(f, a[0]).cast("int"))


def histogram_shape(types: Sequence[PgType]) -> PgType:
    (type_,) = types
    zeros = DIGITS_OF_A_SCALE * type_.scale
    if not type_.fixed or zeros >= MOST_DIGITS:
        raise SparkUnsupportedError("the histogram of scales of a numeric without a declared scale")
    return _numeric(zeros + 1, 0, True)


def scale_histogram(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    """10^(12 x scale) of each value."""
    power = Decimal(10) ** (DIGITS_OF_A_SCALE * a[0].type.scale)
    return f.when(a[0].column.isNotNull(), f.lit(power)).cast(t.decimal)


def numeric_text(f: Functions, value: Value) -> Column:
    """With the digits that PostgreSQL prints."""
    text = value.column.cast("string")
    if value.scale is None or value.type.scale == 0:
        return text
    spare = f.lit(value.type.scale) - value.scale + f.when(value.scale == 0, f.lit(1)).otherwise(f.lit(0))
    return f.substring(text, f.lit(1), f.length(text) - spare)


def parsed(f: Functions, text: Column, type_: PgType) -> tuple[Column, Column | None]:
    """The decimal and the display scale of a numeric that is encoded as text."""
    if type_.fixed:
        return text.cast(type_.decimal), None
    fits = text.rlike(rf"\A-?[0-9]{{1,{WHOLE}}}(\.[0-9]{{1,{SCALE}}})?\z")
    overflow = inexact(f, f"a numeric value does not fit decimal({MOST_DIGITS},{SCALE}) exactly")
    value = f.when(fits, text.cast(type_.decimal)).when(text.isNotNull(), overflow)
    return value, f.length(f.substring_index(text, ".", -1)) * f.when(text.contains("."), 1).otherwise(0)


# Floats.


def _infinite(f: Functions, x: Column) -> Column:
    return f.abs(x) == f.lit(float("inf"))


def _checked(f: Functions, result: Column, *, overflow: Column, underflow: Column | None = None) -> Column:
    checked = f.when(_infinite(f, result) & overflow, refused(f, f"{OUT_OF_RANGE}: overflow"))
    if underflow is not None:
        checked = checked.when((result == 0) & underflow, refused(f, f"{OUT_OF_RANGE}: underflow"))
    return checked.otherwise(result)


def _float_sum(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    x, y = a[0].column, a[1].column
    return _checked(f, x + y, overflow=~_infinite(f, x) & ~_infinite(f, y))


def _float_difference(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    x, y = a[0].column, a[1].column
    return _checked(f, x - y, overflow=~_infinite(f, x) & ~_infinite(f, y))


def _float_product(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    x, y = a[0].column, a[1].column
    return _checked(f, x * y, overflow=~_infinite(f, x) & ~_infinite(f, y), underflow=(x != 0) & (y != 0))


def _float_quotient(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    x, y = a[0].column, a[1].column
    quotient = (x / y).cast(spark_type(t))
    checked = _checked(f, quotient, overflow=~_infinite(f, x), underflow=(x != 0) & ~_infinite(f, y))
    zero = f.when(f.isnan(x), x).when(x.isNotNull(), refused(f, DIVISION_BY_ZERO))
    return f.when(y == 0, zero).otherwise(checked)


FLOAT_OPERATORS: dict[str, Build] = {
    "+": _float_sum,
    "-": _float_difference,
    "*": _float_product,
    "/": _float_quotient,
}


def _floor(f: Functions, x: Column) -> Column:
    """floor() of a float, which preserves -0. Spark's floor returns a bigint."""
    whole = f.rint(x)
    return f.when(whole > x, whole - 1).otherwise(whole)


def float_round(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.rint(a[0].column)


def float_floor(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return _floor(f, a[0].column)


def float_ceil(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return -_floor(f, -a[0].column)


def float_trunc(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    x = a[0].column
    return f.when(x > 0, _floor(f, x)).otherwise(-_floor(f, -x))


def float_sign(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    """The sign of NaN is 0."""
    x = a[0].column
    one = f.when((x > 0) & ~f.isnan(x), f.lit(1.0)).when(x < 0, f.lit(-1.0))
    return one.when(x.isNotNull(), f.lit(0.0))


def negated(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    return f.negative(a[0].column).cast(spark_type(t))


def absolute(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    return f.abs(a[0].column).cast(spark_type(t))


# Casts between numbers.


def widened(_f: Functions, a: Sequence[Value], t: PgType) -> Column:
    """Casts between integers, where ANSI mode refuses an overflow, and to the nearest float."""
    return a[0].column.cast(spark_type(t))


def integer_to_numeric(_f: Functions, a: Sequence[Value], t: PgType) -> Column:
    return a[0].column.cast(t.decimal)


def numeric_to_integer(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    whole = f.round(a[0].column, 0)
    edge = 1 << {"int2": 15, "int4": 31, "int8": 63}[t.name]
    outside = (whole < f.lit(Decimal(-edge))) | (whole >= f.lit(Decimal(edge)))
    return f.when(outside, refused(f, OUT_OF_RANGE)).otherwise(whole.cast(spark_type(t)))


def numeric_to_float(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    """Through the text, which both engines parse to the nearest float."""
    result = a[0].column.cast("string").cast(spark_type(t))
    return _checked(f, result, overflow=a[0].column.isNotNull(), underflow=a[0].column != 0)


def text_to_float(f: Functions, text: Column, t: PgType) -> Column:
    """From the encoded text of a numeric, with any number of digits."""
    result = text.cast(spark_type(t))
    return _checked(f, result, overflow=~text.endswith("Infinity"), underflow=text.rlike("[1-9]"))


def float_to_integer(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    """Half to even, as rint does."""
    whole = f.rint(a[0].column.cast("double"))
    edge = float(1 << {"int2": 15, "int4": 31, "int8": 63}[t.name])
    outside = f.isnan(whole) | (whole < f.lit(-edge)) | (whole >= f.lit(edge))
    return f.when(outside, refused(f, OUT_OF_RANGE)).otherwise(whole.cast(spark_type(t)))


def float8_to_float4(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    x = a[0].column
    return _checked(f, x.cast("float"), overflow=~_infinite(f, x), underflow=x != 0)


def to_numeric(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    """To numeric(p,s): rounded half away from zero, and refused if it does not fit, as in PostgreSQL."""
    source, x = a[0].type, a[0].column
    if t.scale < source.scale:
        x = f.round(x, t.scale)
    elif t.whole >= source.whole:
        return x.cast(t.decimal)
    if t.whole > source.whole or t.whole + t.scale >= MOST_DIGITS:
        return x.cast(t.decimal)
    edge = Decimal(10) ** t.whole
    outside = (x >= f.lit(edge)) | (x <= f.lit(-edge))
    return f.when(outside, refused(f, "numeric field overflow")).otherwise(x.cast(t.decimal))


def digits_shape(digits: int) -> Callable[[Sequence[PgType]], PgType]:
    """The type of a result with a constant scale."""
    return lambda _types: _numeric(
        15, digits, True
    )  # enough for the seconds of all years; the unscaled value fits a bigint
