"""A typed expression: every operator, function and cast is resolved to its entry; implicit casts are explicit nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from pgtrickle.pipeline.expressions.entries import Entry
from pgtrickle.pipeline.expressions.types import INTEGERS as _INTEGERS
from pgtrickle.pipeline.expressions.types import MOST_DIGITS, PgType


@dataclass(frozen=True, slots=True)
class Reference:
    """A column of the DataFrame, in the encoded form of its type.

    `native`: a numeric as a decimal instead, with its display scale in the column `scale_name` unless the type
    fixes it.
    """

    name: str
    type: PgType
    native: bool = False

    @property
    def scale_name(self) -> str | None:
        """The column with the display scale of each value, if there is one."""
        return f"{self.name}_scale" if self.native and self.type.name == "numeric" and not self.type.fixed else None


@dataclass(frozen=True, slots=True)
class Constant:
    value: object  # in the encoded form of the type; None is NULL
    type: PgType


@dataclass(frozen=True, slots=True)
class Call:
    """CASE: condition, value, condition, value, ..., value of ELSE. NULLIF: the value, then both sides of `=`."""

    entry: Entry
    arguments: tuple[Node, ...]
    type: PgType


Node = Reference | Constant | Call


def may_fail(node: Node) -> bool:
    match node:
        case Reference():
            return node.type.name == "numeric" and not node.native  # it may have more than 38 digits
        case Constant():
            return False
        case Call():
            return (node.entry.may_fail and not _fits(node)) or any(may_fail(a) for a in node.arguments)
        case _:
            assert_never(node)


def _fits(node: Call) -> bool:
    """Whether all results of +, - and * fit the decimal type that follows from the argument types, and those of a cast
    its target type."""
    types = [a.type for a in node.arguments]
    if node.entry.kind == "cast" and types[0].name in _INTEGERS and node.type.name in _INTEGERS:
        return _INTEGERS.index(types[0].name) < _INTEGERS.index(node.type.name)
    if len(types) != 2 or node.type.name != "numeric" or not all(t.name == "numeric" and t.fixed for t in types):
        return False
    left, right = types
    if node.entry.name in ("+", "-"):
        return max(left.whole, right.whole) + 1 + max(left.scale, right.scale) <= MOST_DIGITS
    return node.entry.name == "*" and left.whole + right.whole + left.scale + right.scale < MOST_DIGITS


def references(node: Node) -> frozenset[str]:
    """The names of all columns that the expression reads."""
    match node:
        case Reference():
            return frozenset({node.name})
        case Constant():
            return frozenset()
        case Call():
            return frozenset().union(*(references(a) for a in node.arguments))


def substituted(node: Node, by: Mapping[str, Node]) -> Node:
    """The expression with columns replaced by expressions of the same type."""
    match node:
        case Reference():
            return by.get(node.name, node)
        case Constant():
            return node
        case Call():
            return replace(node, arguments=tuple(substituted(a, by) for a in node.arguments))
