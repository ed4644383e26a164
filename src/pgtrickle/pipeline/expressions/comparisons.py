"""Comparisons, logic and the constructs that choose one of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from pgtrickle.pipeline.expressions import times
from pgtrickle.pipeline.expressions.numbers import numeric_text, same_shape
from pgtrickle.pipeline.expressions.types import Column, Functions, PgType, spark_type
from pgtrickle.pipeline.expressions.values import Build, Value, scale

_COMPARE: dict[str, Callable[[Column, Column], Column]] = {
    "=": lambda x, y: x == y,
    "<>": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "IS NOT DISTINCT FROM": lambda x, y: x.eqNullSafe(y),
    "IS DISTINCT FROM": lambda x, y: ~x.eqNullSafe(y),
}
EQUALITY = ("=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
COMPARISONS = tuple(_COMPARE)


def compared(operator: str) -> Build:
    def build(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
        return _COMPARE[operator](*_sides(f, a))

    return build


def _sides(f: Functions, a: Sequence[Value]) -> tuple[Column, Column]:
    left, right = a
    if left.type.name == "numeric":  # explicit cast: Spark's implicit widening differs
        common = same_shape([left.type, right.type]).decimal
        return left.column.cast(common), right.column.cast(common)
    if left.type.name != right.type.name:
        return times.comparable(f, left), times.comparable(f, right)
    return left.column, right.column


def key(f: Functions, value: Value) -> Column:
    """A column whose non-NULL values are equal exactly when PostgreSQL's values are equal."""
    if value.type.name == "numeric":
        return trimmed(f, value.column.cast("string"))
    if value.type.name in ("float4", "float8"):  # -0 becomes 0; Spark treats all NaN as equal, as PostgreSQL does
        return f.when(value.column == 0, f.lit(0.0).cast(_float(value.type))).otherwise(value.column)
    return value.column


def trimmed(f: Functions, text: Column) -> Column:
    """A numeric's text without trailing zeros of its fraction."""
    return f.when(text.contains("."), f.regexp_replace(text, f.lit(r"\.?0+\z"), f.lit(""))).otherwise(text)


def _float(type_: PgType) -> str:
    return "float" if type_.name == "float4" else "double"


# Constructs take values of one type. They return a column and, for a numeric without a fixed scale, its display scale.


def _cast(value: Value, t: PgType) -> Column:
    return value.column.cast(t.decimal) if t.name == "numeric" else value.column


def case(
    f: Functions, conditions: Sequence[Column], values: Sequence[Value], t: PgType
) -> tuple[Column, Column | None]:
    """`values` has one element more than `conditions`: the value of ELSE."""
    column, shown = _cast(values[-1], t), scale(f, values[-1])
    for condition, value in zip(reversed(conditions), reversed(values[:-1]), strict=True):
        column = f.when(condition, _cast(value, t)).otherwise(column)
        shown = f.when(condition, scale(f, value)).otherwise(shown)
    return column, None if t.fixed else shown


def coalesce(f: Functions, a: Sequence[Value], t: PgType) -> tuple[Column, Column | None]:
    shown = scale(f, a[-1])
    for value in reversed(a[:-1]):
        shown = f.when(value.column.isNotNull(), scale(f, value)).otherwise(shown)
    return f.coalesce(*(_cast(v, t) for v in a)), None if t.fixed else shown


def extreme(operator: str) -> Callable[[Functions, Sequence[Value], PgType], tuple[Column, Column | None]]:
    """GREATEST (>) and LEAST (<): NULLs are ignored; of equal values the first is returned."""

    def build(f: Functions, a: Sequence[Value], t: PgType) -> tuple[Column, Column | None]:
        column, shown = _cast(a[0], t), scale(f, a[0])
        for value in a[1:]:
            other = _cast(value, t)
            better = column.isNull() | _COMPARE[operator](other, column)
            takes = other.isNotNull() & better
            column, shown = (
                f.when(takes, other).otherwise(column),
                f.when(takes, scale(f, value)).otherwise(shown),
            )
        return column, None if t.fixed else shown

    return build


def nullif(f: Functions, a: Sequence[Value], _t: PgType) -> tuple[Column, Column | None]:
    """`a`: the value, then both operands of the comparison."""
    left, right = _sides(f, a[1:])
    return f.when(~f.coalesce(left == right, f.lit(False)), a[0].column), a[0].scale


LOGIC: dict[str, tuple[int, Build]] = {
    "AND": (2, lambda _f, a, _t: a[0].column & a[1].column),
    "OR": (2, lambda _f, a, _t: a[0].column | a[1].column),
    "NOT": (1, lambda _f, a, _t: ~a[0].column),
    "IS TRUE": (1, lambda f, a, _t: f.coalesce(a[0].column, f.lit(False))),
    "IS FALSE": (1, lambda f, a, _t: f.coalesce(~a[0].column, f.lit(False))),
}


def is_null(_f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return a[0].column.isNull()


def is_not_null(_f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return a[0].column.isNotNull()


def to_bool(_f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return a[0].column != 0


def from_bool(_f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return a[0].column.cast("int")


def as_text(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return numeric_text(f, a[0])


def literal(f: Functions, value: object, t: PgType) -> Column:
    """A constant in native form (see `values.Value`)."""
    if t.name == "numeric":
        return f.lit(None if value is None else Decimal(str(value))).cast(t.decimal)
    return f.lit(value).cast(spark_type(t))
