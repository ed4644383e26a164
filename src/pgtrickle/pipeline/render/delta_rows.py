"""What every template's statements consist of: the rows of a plan in the new state, and its delta rows."""

from __future__ import annotations

from collections.abc import Mapping

from pgtrickle.errors import InvariantError
from pgtrickle.pipeline.differentiate import general
from pgtrickle.pipeline.differentiate.linear import ChangedSource, W
from pgtrickle.pipeline.differentiate.states import ALL_NEW, Statement
from pgtrickle.pipeline.plan.nodes import Node


def delta_rows(
    changed: Mapping[int, ChangedSource], plan: Node, shown: str, width: int, names: str | None = None
) -> str:
    """One statement for the delta of a plan: the weight, then `shown` over q(c0, c1, ...)."""
    statement = general.new_statement(changed)
    # A plan without tables never changes.
    terms = general.delta(statement, plan) or [f"SELECT q.*, 1 AS {W} FROM ({current_rows(plan)}) AS q WHERE false"]
    union = " UNION ALL ".join(f"({sql})" for sql in terms)
    listed = names or ", ".join(f"c{i}" for i in range(width))
    return f"{statement.with_clause()}SELECT q.{W}, {shown} FROM ({union}) AS q({listed}, {W})"


def current_rows(plan: Node) -> str:
    return Statement({}, no_delta).render(plan, ALL_NEW)


def no_delta(_statement: Statement, _node: Node) -> str:
    raise InvariantError("a delta was requested without changes")
