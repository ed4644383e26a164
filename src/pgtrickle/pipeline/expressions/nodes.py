"""A typed expression: every operator, function and cast resolved to its entry, every implicit cast written out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from pgtrickle.pipeline.expressions.entries import Entry
from pgtrickle.pipeline.expressions.types import PgType


@dataclass(frozen=True, slots=True)
class Reference:
    """A column of the frame, in the form in which its type travels."""

    name: str
    type: PgType


@dataclass(frozen=True, slots=True)
class Constant:
    value: object  # in the form in which the type travels; None is NULL
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
            return node.type.name == "numeric"  # its digits may not fit
        case Constant():
            return False
        case Call():
            return node.entry.may_fail or any(may_fail(a) for a in node.arguments)
        case _:
            assert_never(node)
