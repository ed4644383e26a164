"""Checks that Spark can compare all key columns for equality. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pgtrickle.pipeline.expressions.nodes import Node
from pgtrickle.pipeline.expressions.resolve import equality
from pgtrickle.pipeline.relational.algebra import (
    Aggregate,
    AtMostOne,
    Distinct,
    Join,
    Recursive,
    Relation,
    SetOperation,
    Top,
    Window,
    children,
    columns,
)


def check_keys(relation: Relation) -> None:
    """Raises SparkUnsupportedError for the first type without one."""
    seen: set[int] = set()
    waiting = [relation]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        for one, other in _compared(current):
            equality(one, other)
        waiting += children(current)


def _compared(relation: Relation) -> Iterator[tuple[Node, Node]]:
    match relation:
        case Join():
            yield from relation.same
        case Aggregate():
            yield from ((k.node, k.node) for k in relation.keys)
            yield from ((a, a) for _, call in relation.calls if call.is_distinct for a in call.arguments)
        case Window():
            yield from ((n, n) for _, window in relation.calls for n in window.partition)
        case Top() | AtMostOne():
            yield from ((n, n) for n in relation.partition)
        case Distinct() | SetOperation():
            yield from ((c, c) for c in columns(relation))
        case Recursive() if relation.is_distinct:
            yield from ((c, c) for c in relation.columns)
        case _:
            return
