"""The supported aggregate functions and their result types. Pure.

Aggregates whose result depends on the order of the rows are refused: sums of floats, string_agg without ORDER BY. avg
is a sum, a count and PostgreSQL's division.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.coercion import cast
from pgtrickle.pipeline.expressions.nodes import Constant, Node, Reference
from pgtrickle.pipeline.expressions.resolve import case, construct, operator
from pgtrickle.pipeline.expressions.roots import root_of_quotient
from pgtrickle.pipeline.expressions.types import (
    BOOL,
    FLOATS,
    INT4,
    INT8,
    INTEGERS,
    MOST_DIGITS,
    NUMERIC,
    ORDERED,
    TEXT,
    TEXTS,
    PgType,
)
from pgtrickle.pipeline.relational.aggregate_syntax import Written
from pgtrickle.pipeline.relational.algebra import AggregateCall, SortKey
from pgtrickle.pipeline.relational.naming import Names


class Calls:
    """Aggregates with their columns; equal aggregates are computed once."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._made: dict[AggregateCall, Reference] = {}

    def column(self, call: AggregateCall) -> Reference:
        if call not in self._made:
            self._made[call] = self._names.column(call.type, native=True)
        return self._made[call]

    @property
    def all(self) -> tuple[tuple[Reference, AggregateCall], ...]:
        return tuple((column, call) for call, column in self._made.items())


def value(
    written: Written,
    arguments: Sequence[Node],
    where: Node | None,
    order: tuple[SortKey, ...],
    column: Callable[[AggregateCall], Reference],
) -> Node:
    """The aggregate's value, computed from columns that `column` returns."""
    call = AggregateCall(written.name, tuple(arguments), INT8, written.is_distinct, where, order)
    name = written.name
    if name == "count":
        return column(replace(call, order=()))
    if name == "cardinality":
        return _cardinality(replace(call, name="count", arguments=(), order=()), column)
    if name in ("percentile_disc", "mode"):
        # Numerics are in native form here; the sort key is the value.
        return column(replace(call, type=order[0].node.type, parameters=written.parameters))
    if name == "rank":
        return _hypothetical_rank(call, column)
    if not arguments:
        raise SparkUnsupportedError(f"{name}()")
    type_ = arguments[0].type
    match name:
        case "string_agg" if written.is_window and type_.name in TEXTS:
            return column(replace(call, type=replace(type_, name="text", length=None)))
        case "sum":
            return column(replace(call, type=_sum_type(type_, name), order=()))
        case "avg":
            total = column(replace(call, name="sum", type=_total_type(type_), order=()))
            count = column(replace(call, name="count", order=()))
            return operator("/", total, cast(count, NUMERIC))
        case "min" | "max":
            ordered(type_, name)
            return column(replace(call, type=type_, is_distinct=False, order=()))
        case "bool_and" | "bool_or" if type_ == BOOL:
            return column(replace(call, type=type_, is_distinct=False, order=()))
        case "bit_and" | "bit_or" | "bit_xor" if type_.name in INTEGERS:
            return column(replace(call, type=type_, order=()))
        case "var_samp" | "var_pop" | "stddev_samp" | "stddev_pop":
            return _variance(call, column)
        case "jsonb_agg" if type_.name in (*INTEGERS, "text", "varchar", "numeric"):
            if not any(k.node == arguments[0] for k in order):
                raise SparkUnsupportedError("jsonb_agg", "its ORDER BY does not decide the result")
            return column(replace(call, arguments=(cast(arguments[0], TEXT),), type=TEXT, parameters=(type_.name,)))
        case "array_to_string":
            return column(_array_to_string(replace(call, parameters=written.parameters)))
        case "string_agg" if type_.name in TEXTS:
            return column(_string_agg(call))
    raise SparkUnsupportedError(f"aggregate {name} ({type_.sql_name})")


def _cardinality(call: AggregateCall, column: Callable[[AggregateCall], Reference]) -> Node:
    """cardinality(array_agg(...)): the number of rows; NULL if there are none."""
    if call.is_distinct:
        raise SparkUnsupportedError("array_agg (DISTINCT)")
    count = column(call)
    return case([(operator(">", count, Constant(0, INT8)), cast(count, INT4))])


def _hypothetical_rank(call: AggregateCall, column: Callable[[AggregateCall], Reference]) -> Node:
    """rank(x) WITHIN GROUP (ORDER BY y): one more than the number of rows that sort before x."""
    (sort,) = call.order
    (argument,) = call.arguments
    before = operator(">" if sort.is_descending else "<", sort.node, argument)
    if sort.has_nulls_first:
        before = construct("OR", construct("IS NULL", sort.node), before)
    where = before if call.where is None else construct("AND", call.where, before)
    counted = column(AggregateCall("count", (), INT8, where=where))
    return operator("+", counted, Constant(1, INT8))


def _variance(call: AggregateCall, column: Callable[[AggregateCall], Reference]) -> Node:
    """In PostgreSQL's steps: (n * sum(x^2) - sum(x)^2) / (n * (n - 1)), or n^2; 0 if the numerator is negative.

    stddev is the square root of the rounded quotient.
    """
    value = call.arguments[0]
    if value.type.name not in (*INTEGERS, "numeric") or call.is_distinct:
        raise SparkUnsupportedError(f"aggregate {call.name} ({value.type.sql_name})")
    number = cast(value, NUMERIC)
    square = operator("*", number, number)
    plain = replace(call, order=())
    total = column(replace(plain, name="sum", arguments=(number,), type=_total_type(number.type)))
    squares = column(replace(plain, name="sum", arguments=(square,), type=_total_type(square.type)))
    rows = column(replace(plain, name="count"))
    n = cast(rows, NUMERIC)
    one = 1 if call.name in ("var_samp", "stddev_samp") else 0
    numerator = operator("-", operator("*", n, squares), operator("*", total, total))
    zero = Constant("0", PgType("numeric", 1, 0))
    divisor = cast(operator("*", rows, operator("-", rows, Constant(one, INT8))), NUMERIC)
    quotient = operator("/", numerator, divisor)
    if call.name in ("stddev_samp", "stddev_pop"):
        quotient = root_of_quotient(quotient)
    quotient = case([(operator("<=", numerator, zero), zero)], quotient)
    return case([(operator(">", rows, Constant(one, INT8)), quotient)])


def _array_to_string(call: AggregateCall) -> AggregateCall:
    value = call.arguments[0]
    if value.type.name not in (*INTEGERS, "text", "varchar", "bool", "numeric", "date", "timestamp"):
        raise SparkUnsupportedError(f"array_to_string (array_agg ({value.type.sql_name}))")
    if not any(k.node == value for k in call.order):
        raise SparkUnsupportedError("array_agg", "its ORDER BY does not decide the result")
    if value.type.name == "bool":
        raise SparkUnsupportedError("array_to_string of booleans")
    return replace(call, arguments=(cast(value, TEXT),), type=TEXT)


def _string_agg(call: AggregateCall) -> AggregateCall:
    text, delimiter = call.arguments
    if not isinstance(delimiter, Constant):
        raise SparkUnsupportedError("string_agg", "its delimiter is not constant")
    if not any(k.node == text for k in call.order):
        raise SparkUnsupportedError("string_agg", "its ORDER BY does not decide the result")
    return replace(call, type=replace(text.type, name="text", length=None))


def _sum_type(type_: PgType, name: str) -> PgType:
    if type_.name in ("int2", "int4"):
        return INT8
    return _total_type(type_, name)


def _total_type(type_: PgType, name: str = "avg") -> PgType:
    """The numeric type of a sum, wide enough for 10^10 values."""
    if type_.name in INTEGERS:
        return PgType("numeric", 29, 0)
    if type_.name == "numeric":
        return replace(type_, whole=min(type_.whole + 10, MOST_DIGITS - type_.scale))
    if type_.name in FLOATS:
        raise SparkUnsupportedError(f"{name} ({type_.sql_name})", "a sum of floats depends on the order of the rows")
    raise SparkUnsupportedError(f"aggregate {name} ({type_.sql_name})")


def ordered(type_: PgType, what: str) -> None:
    """Refuses a sort order that Spark does not have."""
    if type_.name not in ORDERED:
        raise SparkUnsupportedError(f"{what} ({type_.sql_name})", "its order is not that of its text")
    if type_.name in TEXTS and not type_.orders_by_code_point:
        raise SparkUnsupportedError(f"{what} ({type_.sql_name})", f"under collation {type_.collation or 'default'}")
