"""The value of a translated expression, and functions that all builders use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pgtrickle.pipeline.expressions.types import Column, Functions, PgType


@dataclass(frozen=True, slots=True)
class Value:
    """`column` holds the value in native form: the encoded form, except for a numeric, which is a decimal. `scale` is
    the display scale of each value unless the type fixes it. `simple` columns can be used several times without cost.
    `constant` is the value if it is known at compile time.
    """

    type: PgType
    column: Column
    scale: Column | None = None
    simple: bool = False
    constant: object = None


Build = Callable[[Functions, Sequence[Value], PgType], Column]
Scale = Callable[[Functions, Sequence[Value], PgType], Column]


def scale(f: Functions, value: Value) -> Column:
    """The display scale of each value."""
    return value.scale if value.scale is not None else f.lit(value.type.scale)


def bind(f: Functions, values: Sequence[Value], body: Callable[[Sequence[Value]], Column]) -> Column:
    """`body` over values that are all evaluated before it, each once.

    Spark's strict operators do not evaluate the right operand if the left one is NULL; PostgreSQL does, and fails if it
    fails. Also, an operand that the body uses four times would otherwise be evaluated four times, at each level of
    nesting. A lambda variable is the only binding that Spark's optimiser does not remove.
    """
    fields: list[Column] = []
    names: dict[int, tuple[str, str | None]] = {}
    for i, value in enumerate(values):
        if value.simple:
            continue
        names[i] = (f"v{i}", None if value.scale is None else f"s{i}")
        fields.append(value.column.alias(f"v{i}"))
        if value.scale is not None:
            fields.append(value.scale.alias(f"s{i}"))
    if not fields:
        return body(values)

    def inner(row: Column) -> Column:
        bound = list(values)
        for i, (v, s) in names.items():
            scale_column = row.getField(s) if s is not None else None
            bound[i] = replace(values[i], column=row.getField(v), scale=scale_column, simple=True)
        return body(bound)

    return f.transform(f.array(f.struct(*fields)), inner).getItem(0)
