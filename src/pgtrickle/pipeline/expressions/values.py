"""A translated expression on its way to a column, and what all builders need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pgtrickle.pipeline.expressions.types import Column, Functions, PgType


@dataclass(frozen=True, slots=True)
class Value:
    """`column` holds the value in the form that operators compute with: that in which it travels, except for a
    numeric, which is a decimal. `scale` is the display scale of each value where the type does not fix it. `simple`
    columns may be written several times at no cost. `constant` is the value where it is known.
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
    """`body` over values that are each computed once, all of them, before it.

    A strict operator of Spark does not look at its right side when the left is NULL; PostgreSQL does, and fails if
    that side fails. And a body that names an operand four times would otherwise compute it four times, at each level
    of nesting. The variable of a lambda is the only binding that Spark's optimiser does not undo.
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
        held = list(values)
        for i, (v, s) in names.items():
            taken = row.getField(s) if s is not None else None
            held[i] = replace(values[i], column=row.getField(v), scale=taken, simple=True)
        return body(held)

    return f.transform(f.array(f.struct(*fields)), inner).getItem(0)
