"""Numerics as integers: an expression's unscaled value (12.30 with scale 2 is 1230) as a bigint column.

Spark multiplies decimals as BigDecimal objects; sums of products are three times as fast over bigints. The results are
exact: a decimal with at most 15 digits and its nearest double determine each other, and a product that exceeds a bigint
is NULL, so that the caller evaluates that row with decimals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from pgtrickle.pipeline.expressions.nodes import Call, Constant, Node, Reference, may_fail
from pgtrickle.pipeline.expressions.translate import column, native
from pgtrickle.pipeline.expressions.types import INTEGERS, Column, Functions

LONG = "bigint"
LONG_DIGITS = 18  # all integers with so many digits are bigints
_DOUBLE_DIGITS = (
    15  # rounding to a double and multiplying by 10^scale changes such a decimal's integer by less than 0.5
)
_INTEGER_DIGITS = {"int2": 5, "int4": 10, "int8": 19}
_OPERATORS = ("+", "-", "*")


@dataclass(frozen=True, slots=True)
class Unscaled:
    """`digits` bounds the digits of the integer. `is_partial`: the column is NULL where a step exceeds a bigint."""

    column: Column
    scale: int
    digits: int
    is_partial: bool = False


def unscaled(f: Functions, node: Node) -> Unscaled | None:
    """None: not all of the expression can be evaluated over integers."""
    match node:
        case Reference():
            return _of_column(f, node)
        case Constant():
            return _of_constant(f, node)
        case Call() if node.type.name == "numeric" and node.type.fixed:
            return _of_call(f, node)
        case _:
            return None


def _of_column(f: Functions, node: Reference) -> Unscaled | None:
    type_, digits = node.type, node.type.whole + node.type.scale
    if type_.name in INTEGERS:
        return Unscaled(native(node)[0].cast(LONG), 0, _INTEGER_DIGITS[type_.name])
    if type_.name != "numeric" or not node.native or not type_.fixed or digits > _DOUBLE_DIGITS:
        return None
    read, _ = native(node)
    if not type_.scale:
        return Unscaled(read.cast(LONG), 0, digits)
    shifted = read.cast("double") * f.lit(float(10**type_.scale))
    return Unscaled(f.rint(shifted).cast(LONG), type_.scale, digits)


def _of_constant(f: Functions, node: Constant) -> Unscaled | None:
    type_ = node.type
    if node.value is None or not (type_.name in INTEGERS or (type_.name == "numeric" and type_.fixed)):
        return None
    number = int(Decimal(str(node.value)).scaleb(type_.scale))
    digits = len(str(abs(number)))
    return Unscaled(f.lit(number).cast(LONG), type_.scale, digits) if digits <= LONG_DIGITS else None


def _of_call(f: Functions, node: Call) -> Unscaled | None:
    entry, arguments = node.entry, node.arguments
    if entry.name == "CASE":
        return _of_case(f, node)
    if entry.kind == "cast":  # from an integer, or to a type that contains the other one
        made = unscaled(f, arguments[0])
        source = arguments[0].type
        if made is None or (source.whole if source.name == "numeric" else made.digits) > node.type.whole:
            return None
        return _rescaled(f, made, node.type.scale)
    if entry.kind != "operator" or entry.name not in _OPERATORS:
        return None
    parts = [unscaled(f, a) for a in arguments]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    if len(known) == 1:
        (one,) = known
        return Unscaled(-one.column, one.scale, one.digits, one.is_partial) if one.digits <= LONG_DIGITS else None
    return _product(f, known) if entry.name == "*" else _sum(f, known, entry.name, node.type.scale)


def _product(f: Functions, parts: Sequence[Unscaled]) -> Unscaled:
    left, right = parts
    digits = left.digits + right.digits
    fits = digits <= LONG_DIGITS
    made = left.column * right.column if fits else f.try_multiply(left.column, right.column)
    return Unscaled(made, left.scale + right.scale, digits, not fits or left.is_partial or right.is_partial)


def _sum(f: Functions, parts: Sequence[Unscaled], operator: str, scale: int) -> Unscaled | None:
    rescaled = [_rescaled(f, part, scale) for part in parts]
    left, right = rescaled
    if left is None or right is None:
        return None
    digits = max(left.digits, right.digits) + 1
    fits = digits <= LONG_DIGITS
    if operator == "+":
        made = left.column + right.column if fits else f.try_add(left.column, right.column)
    else:
        made = left.column - right.column if fits else f.try_subtract(left.column, right.column)
    return Unscaled(made, scale, digits, not fits or left.is_partial or right.is_partial)


def _of_case(f: Functions, node: Call) -> Unscaled | None:
    """`node.arguments`: condition, value, condition, value, ..., value of ELSE. A NULL value stays NULL."""
    conditions, values = node.arguments[:-1:2], [*node.arguments[1::2], node.arguments[-1]]
    if any(may_fail(c) for c in conditions):
        return None
    made = [_branch(f, value, node.type.scale) for value in values]
    known = [m for m in made if m is not None]
    if len(known) < len(made):
        return None
    result = known[-1].column
    for condition, branch in zip(reversed(conditions), reversed(known[:-1]), strict=True):
        result = f.when(column(condition), branch.column).otherwise(result)
    return Unscaled(result, node.type.scale, max(b.digits for b in known), any(b.is_partial for b in known))


def _branch(f: Functions, value: Node, scale: int) -> Unscaled | None:
    if isinstance(value, Constant) and value.value is None:
        return Unscaled(f.lit(None).cast(LONG), scale, 1)
    made = unscaled(f, value)
    return None if made is None else _rescaled(f, made, scale)


def _rescaled(f: Functions, made: Unscaled, scale: int) -> Unscaled | None:
    if scale == made.scale:
        return made
    if scale < made.scale:
        return None
    digits = made.digits + scale - made.scale
    if digits > LONG_DIGITS:
        return None
    return Unscaled(made.column * f.lit(10 ** (scale - made.scale)).cast(LONG), scale, digits, made.is_partial)
