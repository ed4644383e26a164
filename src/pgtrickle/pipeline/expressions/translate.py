"""From a typed expression to a Spark column; the only module here that imports Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from sqlglot import exp

from pgtrickle.pipeline.expressions import comparisons, times
from pgtrickle.pipeline.expressions.coercion import coerce
from pgtrickle.pipeline.expressions.nodes import Call, Constant, Node, Reference, may_fail
from pgtrickle.pipeline.expressions.numbers import numeric_text, parsed, text_to_float
from pgtrickle.pipeline.expressions.resolve import equality, resolve
from pgtrickle.pipeline.expressions.syntax import Columns
from pgtrickle.pipeline.expressions.types import FLOATS, Column, Functions, PgType
from pgtrickle.pipeline.expressions.values import Value, bind

# Settings of the Spark session that exact results require.
CONF = {
    "spark.sql.ansi.enabled": "true",  # overflow and bad casts fail
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",  # digits that do not fit fail instead of being rounded
    # Otherwise a column inside a lambda may resolve to an earlier output of the same name in the same select.
    "spark.sql.lateralColumnAlias.enableImplicitResolution": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",  # "A" and a are two columns
}

_CONSTRUCTS = {
    "COALESCE": comparisons.coalesce,
    "GREATEST": comparisons.extreme(">"),
    "LEAST": comparisons.extreme("<"),
    "NULLIF": comparisons.nullif,
}


def column(node: Node) -> Column:
    """The expression's value in the encoded form of its type."""
    from pyspark.sql import functions as f

    return _outward(f, _value(f, node))


def native(node: Node) -> tuple[Column, Column | None]:
    """The value in native form: a numeric as a decimal, with its display scale unless the type fixes it; other types in
    encoded form."""
    from pyspark.sql import functions as f

    value = _value(f, node)
    return value.column, value.scale


def condition(tree: exp.Expr, columns: Columns) -> Column:
    """A WHERE or ON condition: a boolean column."""
    return column(coerce(resolve(tree, columns), PgType("bool")))


def key(node: Node) -> Column:
    """A grouping key: equal exactly when PostgreSQL's values are equal."""
    return join_keys(node, node)[0]


def join_keys(left: Node, right: Node) -> tuple[Column, Column]:
    """Columns that are equal exactly when PostgreSQL evaluates `left = right` to true, in the operator's types."""
    from pyspark.sql import functions as f

    sides = equality(left, right).arguments
    one = sides[0].type.name == sides[1].type.name
    made = [_canonical(f, side, comparisons.key if one else times.comparable) for side in sides]
    return made[0], made[1]


def _canonical(f: Functions, node: Node, make: Callable[[Functions, Value], Column]) -> Column:
    if (
        isinstance(node, Reference) and node.type.name == "numeric" and not node.native
    ):  # from its text, so that numbers with more than 38 digits can be keys
        return comparisons.trimmed(f, _read(f, node))
    return bind(f, [_value(f, node)], lambda bound: make(f, bound[0]))


def _read(f: Functions, reference: Reference) -> Column:
    return _named(f, reference.name)


def _named(f: Functions, name: str) -> Column:
    return f.col("`" + name.replace("`", "``") + "`")


def _value(f: Functions, node: Node) -> Value:
    match node:
        case Reference():
            column = _read(f, node)
            if node.type.name != "numeric":
                return Value(node.type, column, simple=True)
            if node.native:
                scale = None if node.scale_name is None else _named(f, node.scale_name)
                return Value(node.type, column, scale, simple=True)
            return Value(node.type, *parsed(f, column, node.type))
        case Constant():
            literal = None if node.type.name == "interval" else comparisons.literal(f, node.value, node.type)
            return Value(node.type, literal, simple=True, constant=node.value)
        case Call():
            return _called(f, node)
        case _:
            assert_never(node)


def _called(f: Functions, node: Call) -> Value:
    entry, type_ = node.entry, node.type
    first = node.arguments[0]
    if entry.kind == "cast" and isinstance(first, Reference) and first.type.name == "numeric" and not first.native:
        # From its text, so that it may have more than 38 digits.
        if type_.name == "text":
            return Value(type_, _read(f, first), simple=True)
        if type_.name in FLOATS:
            return Value(type_, text_to_float(f, _read(f, first), type_))
    values = [_value(f, a) for a in node.arguments]
    if entry.name == "CASE":
        conditions = [v.column for v in values[:-1:2]]
        return Value(type_, *comparisons.case(f, conditions, [*values[1::2], values[-1]], type_))
    if entry.name in _CONSTRUCTS:
        return _construct(f, entry.name, values, type_)
    return _function(f, node, values)


def _construct(f: Functions, name: str, values: Sequence[Value], type_: PgType) -> Value:
    build = _CONSTRUCTS[name]
    if name == "COALESCE":  # does not evaluate arguments after the first non-NULL one
        return Value(type_, *build(f, values, type_))
    made = bind(f, values, lambda bound: build(f, bound, type_)[0])
    scale = bind(f, values, lambda bound: build(f, bound, type_)[1]) if _has_own_scale(type_) else None
    return Value(type_, made, scale)


def _function(f: Functions, node: Call, values: Sequence[Value]) -> Value:
    """An operator, a function or a cast."""
    entry, type_ = node.entry, node.type
    plain = entry.build
    assert plain is not None
    # Spark's strict operators stop at the first NULL argument; PostgreSQL evaluates all arguments.
    hidden = entry.kind != "construct" and any(may_fail(a) for a in node.arguments[1:])
    if hidden or entry.repeats:
        made = bind(f, values, lambda bound: plain(f, bound, type_))
    else:
        made = plain(f, values, type_)
    scale = None
    if _has_own_scale(type_):
        assert entry.scale is not None
        shown = entry.scale
        scale = bind(f, values, lambda bound: shown(f, bound, type_)) if entry.repeats else shown(f, values, type_)
    return Value(type_, made, scale)


def _has_own_scale(type_: PgType) -> bool:
    """Whether each value has a display scale of its own."""
    return type_.name == "numeric" and not type_.fixed


def _outward(f: Functions, value: Value) -> Column:
    if value.type.name != "numeric":
        return value.column
    return bind(f, [value], lambda bound: numeric_text(f, replace(bound[0], type=value.type)))
