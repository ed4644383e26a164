"""The plan: immutable nodes of a query. Scalar expressions stay PostgreSQL's own text.

Scan, Select and UnionAll are linear in every table occurrence, so one rule (telescoping) differentiates any nesting of
them. Aggregate stands at the top, under any number of projections and filters over its groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle.model.catalog import Relation


@dataclass(frozen=True, slots=True)
class Scan:
    """One occurrence of a table. `exposes` maps attribute numbers to the names that the query uses for them."""

    occurrence: int
    relation: Relation
    exposes: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Member:
    """An item of FROM: a plan under an alias (as written, quoted where PostgreSQL quotes it)."""

    node: Scan | Select | UnionAll
    alias: str


@dataclass(frozen=True, slots=True)
class From:
    """The FROM clause as text with places for its members: a str is verbatim SQL, an int a member's index."""

    parts: tuple[str | int, ...]
    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        used = [p for p in self.parts if isinstance(p, int)]
        if sorted(used) != list(range(len(self.members))):
            raise ValueError("each member stands in exactly one place of the FROM clause")


@dataclass(frozen=True, slots=True)
class Item:
    """An output column: an expression over the members' aliases, and its name."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Select:
    """Inner joins, a filter and a projection."""

    items: tuple[Item, ...]
    source: From | None
    where: str | None


@dataclass(frozen=True, slots=True)
class UnionAll:
    branches: tuple[Select | UnionAll, ...]

    def __post_init__(self) -> None:
        if len(self.branches) < 2:
            raise ValueError("a union has at least two branches")


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """`function(argument) FILTER (WHERE filter)`; argument is None for count(*)."""

    function: str
    argument: str | None
    filter: str | None
    distinct: bool
    sql: str


@dataclass(frozen=True, slots=True)
class Output:
    """An output column over groups: verbatim SQL with places. `key` and `call` places hold indexes."""

    name: str
    parts: tuple[str | KeyPlace | CallPlace, ...]


@dataclass(frozen=True, slots=True)
class KeyPlace:
    index: int


@dataclass(frozen=True, slots=True)
class CallPlace:
    index: int


@dataclass(frozen=True, slots=True)
class Layer:
    """A projection and filter over the rows below, known there as `alias`."""

    items: tuple[Item, ...]
    alias: str
    where: str | None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """GROUP BY over a linear input. `rows` computes the keys, then one column per call's argument and filter."""

    source: From | None
    where: str | None
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    outputs: tuple[Output, ...]
    having: tuple[str | KeyPlace | CallPlace, ...] | None
    layers: tuple[Layer, ...] = ()


Linear = Scan | Select | UnionAll
Plan = Select | UnionAll | Aggregate


def scans(node: Linear | Aggregate) -> tuple[Scan, ...]:
    """All table occurrences, left to right."""
    if isinstance(node, Scan):
        return (node,)
    if isinstance(node, UnionAll):
        return tuple(s for branch in node.branches for s in scans(branch))
    if node.source is None:
        return ()
    return tuple(s for member in node.source.members for s in scans(member.node))
