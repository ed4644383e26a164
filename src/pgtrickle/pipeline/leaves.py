"""What every template's statements are made of: slots, a plan's rows as they are, a plan's signed changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgtrickle.errors import InvariantError
from pgtrickle.pipeline.nodes import Node
from pgtrickle.pipeline.rules import general
from pgtrickle.pipeline.rules.linear import Changed, W
from pgtrickle.pipeline.rules.states import ALL_NEW, Statement


@dataclass(frozen=True, slots=True)
class Slots:
    """How many sums and extremes a leaf carries after weight and key: the shape of the Spark part."""

    sums: int = 0
    extremes: int = 0
    every: bool = (
        False  # also keys whose weights cancel out: what is read again may be another though none came or went
    )


ROWS = Slots()  # of whole rows: neither


def signed_rows(changed: Mapping[int, Changed], plan: Node, shown: str, width: int, names: str | None = None) -> str:
    """One statement for the change of a plan: the weight, then `shown` over q(c0, c1, ...)."""
    into = general.statement(changed)
    union = " UNION ALL ".join(f"({sql})" for sql in general.delta(into, plan))
    listed = names or ", ".join(f"c{i}" for i in range(width))
    return f"{into.with_clause()}SELECT q.{W}, {shown} FROM ({union}) AS q({listed}, {W})"


def now(plan: Node) -> str:
    return Statement({}, no_delta).render(plan, ALL_NEW)


def no_delta(_into: Statement, _node: Node) -> str:
    raise InvariantError("changes were asked for where nothing has changed")
