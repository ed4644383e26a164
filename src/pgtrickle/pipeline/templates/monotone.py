"""Whether a query is monotone: inserting rows into its tables never deletes or changes rows of its result.

    A subset of A'  implies  Q(A) subset of Q(A')

Definitions that read one another have a least fixpoint only then. The SQL function `_monotone_obstacle` refuses most
other queries when the cycle is defined; this module checks what only the plan shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from pgtrickle.model.reasons import Reason, ReasonCode
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


def obstacle(plan: Plan, describe: Callable[[str], Sequence[SqlType]]) -> Reason | None:
    """Why a plan is not monotone; None if it is. `describe` gets result types from PostgreSQL."""
    reason = _own_obstacle(plan, describe)
    return reason or next((o for child in children(plan) if (o := obstacle(child, describe)) is not None), None)


def _own_obstacle(plan: Plan, describe: Callable[[str], Sequence[SqlType]]) -> Reason | None:
    match plan:
        case Aggregate():
            return Reason.of(ReasonCode.USES_AGGREGATE)
        case Recursive():
            return Reason.of(ReasonCode.USES_RECURSION)
        case Block():
            return _block(plan)
        case SetOperation() if plan.operator.startswith("EXCEPT"):
            return Reason.of(ReasonCode.USES_EXCEPT)
        case Distinct() | SetOperation():
            return _ambiguous_equality(plan, describe)
        case Scan() | Select() | UnionAll() | Concat() | Values():
            return None
        case _:
            assert_never(plan)


def _block(block: Block) -> Reason | None:
    if block.region is not None:
        return Reason.of(ReasonCode.USES_REGIONS)
    kinds = {j.kind for tree in block.trees for j in joins(tree)} - {"JOIN", "CROSS JOIN"}
    if kinds:
        return Reason.of(ReasonCode.USES_OUTER_JOIN)
    if any(
        subqueries(text)
        for text in (*(c.text for c in block.columns), *(p.call for p in from_items(block)), block.tail)
    ):
        return Reason.of(ReasonCode.USES_SUBQUERY_VALUE)
    conditions = [j.on for tree in block.trees for j in joins(tree) if j.on is not None]
    for text in [*conditions, *([block.where] if block.where is not None else [])]:
        for condition in conjuncts(text):
            if subqueries(condition) and not _is_existence_test(condition):
                return Reason.of(ReasonCode.USES_NESTED_SUBQUERY)
    return None


def _is_existence_test(condition: Text) -> bool:
    """Whether a condition is exactly EXISTS (...) or x IN (...)."""
    sub = subqueries(condition)[0]
    if sub.kind == "in":
        return is_in_condition(condition, sub)
    if sub.kind != "exists" or len(condition) != 3 or condition[1] is not sub:
        return False
    return str(condition[0]).replace("(", " ").split() == ["EXISTS"] and not str(condition[2]).strip(" )")


def _ambiguous_equality(node: Distinct | SetOperation, describe: Callable[[str], Sequence[SqlType]]) -> Reason | None:
    """Equal rows with different texts (1.0 and 1.00) have one representative, which may change: rows are replaced."""
    for type_ in describe(current_rows(node)):
        is_scaled = type_.base == NUMERIC and numeric_scale(type_.typmod) is not None
        if not (is_scaled or is_comparable(type_)):
            return Reason.of(ReasonCode.USES_LOOSE_DISTINCT, type=type_.name)
    return None
