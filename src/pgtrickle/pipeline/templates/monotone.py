"""Whether a query is monotone: inserting rows into its tables never deletes or changes rows of its result.

    A subset of A'  implies  Q(A) subset of Q(A')

Definitions that read one another have a least fixpoint only then. The SQL function `_monotone_obstacle` refuses most
other queries when the cycle is defined; this module finds what only the plan shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from pgtrickle.pipeline.codec import NUMERIC, SqlType, is_comparable, numeric_scale
from pgtrickle.pipeline.plan.keyed import is_in_condition
from pgtrickle.pipeline.plan.names import conjuncts
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    Block,
    Concat,
    Distinct,
    Plan,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Text,
    UnionAll,
    Values,
    children,
    from_items,
    joins,
    subqueries,
)
from pgtrickle.pipeline.render.delta_rows import current_rows


def obstacle(plan: Plan, describe: Callable[[str], Sequence[SqlType]]) -> str | None:
    """What keeps a plan from being monotone; None when nothing does. `describe` asks PostgreSQL for result types."""
    found = _own_obstacle(plan, describe)
    return found or next((o for child in children(plan) if (o := obstacle(child, describe)) is not None), None)


def _own_obstacle(plan: Plan, describe: Callable[[str], Sequence[SqlType]]) -> str | None:
    match plan:
        case Aggregate():
            return "an aggregate or GROUP BY"
        case Recursive():
            return "WITH RECURSIVE"
        case Block():
            return _block(plan)
        case SetOperation() if plan.operator.startswith("EXCEPT"):
            return "EXCEPT"
        case Distinct() | SetOperation():
            return _ambiguous_equality(plan, describe)
        case Scan() | Select() | UnionAll() | Concat() | Values():
            return None
        case _:
            assert_never(plan)


def _block(block: Block) -> str | None:
    if block.region is not None:
        return "an aggregate, a window function, DISTINCT ON, LIMIT or a function that returns several rows"
    kinds = {j.kind for tree in block.trees for j in joins(tree)} - {"JOIN", "CROSS JOIN"}
    if kinds:
        return "an outer join"
    if any(
        subqueries(text)
        for text in (*(c.text for c in block.columns), *(p.call for p in from_items(block)), block.tail)
    ):
        return "a subquery whose answer is part of a row"
    conditions = [j.on for tree in block.trees for j in joins(tree) if j.on is not None]
    for text in [*conditions, *([block.where] if block.where is not None else [])]:
        for condition in conjuncts(text):
            if subqueries(condition) and not _only_asks(condition):
                return "a subquery under NOT, OR or inside an expression"
    return None


def _only_asks(condition: Text) -> bool:
    """Whether a condition is exactly EXISTS (...) or x IN (...)."""
    sub = subqueries(condition)[0]
    if sub.kind == "in":
        return is_in_condition(condition, sub)
    if sub.kind != "exists" or len(condition) != 3 or condition[1] is not sub:
        return False
    return str(condition[0]).replace("(", " ").split() == ["EXISTS"] and not str(condition[2]).strip(" )")


def _ambiguous_equality(node: Distinct | SetOperation, describe: Callable[[str], Sequence[SqlType]]) -> str | None:
    """Equal rows with different texts (1.0 and 1.00) have one representative, which may change: rows are replaced."""
    for type_ in describe(current_rows(node)):
        is_scaled = type_.base == NUMERIC and numeric_scale(type_.typmod) is not None
        if not (is_scaled or is_comparable(type_)):
            return f"DISTINCT, UNION or INTERSECT over type {type_.name}, whose equal values may look different"
    return None
