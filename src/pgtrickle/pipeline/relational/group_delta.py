"""The delta of groups whose state is stored: the change of their sums, or their whole new state.

The query is an aggregate below projections. There are two forms, depending on the aggregates:

* `signed`: for each affected group, every aggregate over the inserted rows and over the deleted rows, to be added to
  the state. Only for counts and exact sums. It reads no more than the delta of the rows does.
* `replaced`: for each affected group, every aggregate over the group's new rows. A group without rows has NULLs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.nodes import Constant, Node, Reference, references, substituted
from pgtrickle.pipeline.expressions.resolve import case, construct, operator
from pgtrickle.pipeline.expressions.types import INT8, PgType
from pgtrickle.pipeline.relational.algebra import (
    Aggregate,
    AggregateCall,
    Distinct,
    Generate,
    Join,
    Output,
    Project,
    Relation,
    columns,
)
from pgtrickle.pipeline.relational.delta import Deltas
from pgtrickle.pipeline.relational.naming import Names
from pgtrickle.pipeline.relational.scopes import Rows
from pgtrickle.pipeline.relational.states import NEW, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    StatesOfInputs = Callable[[str, str, str], DataFrame]

_SIGNED = ("count", "sum")
INSERTED, DELETED = "came", "gone"


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """A column of the result: `number` is the number of the query's column; `side` is came (inserted rows) or gone
    (deleted rows), or "" for a key or a new value."""

    number: int
    side: str
    type: PgType


@dataclass(frozen=True, slots=True)
class CompiledGroups:
    """`is_signed`: aggregates over the inserted and over the deleted rows; otherwise over the new groups."""

    relation: Project
    columns: tuple[GroupColumn, ...]
    is_signed: bool

    def build(self, session: SparkSession, inputs: StatesOfInputs) -> DataFrame:
        from pgtrickle.pipeline.relational.build import Builder

        return Builder(session, inputs).result(self.relation, [f"c{i}" for i in range(len(self.columns))])


def group_changes(rows: Rows, names: Names, changed: frozenset[Source], *, signed: bool) -> CompiledGroups | None:
    """None: no change. Raises SparkUnsupportedError if the query is not an aggregate below projections.

    `signed`: the aggregates are counts and exact sums, so that changes can be added.
    """
    aggregate, shown = _core(rows)
    deltas = Deltas(names, changed)
    delta = deltas.smallest(aggregate.child)
    if delta is None:
        return None
    if signed and all(call.name in _SIGNED and not call.is_distinct for _, call in aggregate.calls):
        return _signed(aggregate, shown, delta, deltas)
    return _replaced(aggregate, shown, delta, deltas)


def _core(rows: Rows) -> tuple[Aggregate, list[Node]]:
    """The aggregate, and the query's columns as expressions over its columns."""
    projections: list[Project] = []
    relation = rows.relation
    while isinstance(relation, Project):
        projections.append(relation)
        relation = relation.child
    if not isinstance(relation, Aggregate):
        raise SparkUnsupportedError("the change of groups", "the query is not one aggregate")
    expressions: dict[str, Node] = {c.name: c for c in columns(relation)}
    for projection in reversed(projections):
        expressions = {o.column.name: substituted(o.node, expressions) for o in projection.outputs}
    return relation, [expressions[c.name] for _, c in rows.columns]


def _signed(aggregate: Aggregate, shown: list[Node], delta: Relation, deltas: Deltas) -> CompiledGroups:
    weight, zero = deltas.weight, Constant(0, INT8)
    is_inserted, is_deleted = operator(">", weight, zero), operator("<", weight, zero)
    times = case([(is_inserted, weight)], operator("-", zero, weight))
    units = Generate(delta, "generate_series", (Constant(1, INT8), times), deltas.names.column(INT8))
    calls: list[tuple[Reference, AggregateCall]] = []
    sides: dict[str, dict[str, Node]] = {INSERTED: {}, DELETED: {}}
    for target, call in aggregate.calls:
        for side, test in ((INSERTED, is_inserted), (DELETED, is_deleted)):
            where = test if call.where is None else construct("AND", call.where, test)
            column = deltas.names.column(target.type, native=target.native)
            calls.append((column, replace(call, where=where)))
            sides[side][target.name] = column
    outputs: list[Output] = []
    made: list[GroupColumn] = []
    summed = {target.name for target, _ in aggregate.calls}
    for number, node in enumerate(shown):
        parts = [(side, substituted(node, by)) for side, by in sides.items()]
        for side, part in parts if references(node) & summed else [("", node)]:
            outputs.append(deltas.names.output(part))
            made.append(GroupColumn(number, side, node.type))
    grouped = Aggregate(units, aggregate.keys, tuple(calls))
    return CompiledGroups(Project(grouped, tuple(outputs)), tuple(made), is_signed=True)


def _replaced(aggregate: Aggregate, shown: list[Node], delta: Relation, deltas: Deltas) -> CompiledGroups:
    names = deltas.names
    child = deltas.at(aggregate.child, NEW)
    made = tuple(GroupColumn(number, "", node.type) for number, node in enumerate(shown))
    if not aggregate.keys:
        total = replace(aggregate, child=child)
        return CompiledGroups(Project(total, tuple(map(names.output, shown))), made, is_signed=False)
    keys = [k.node for k in aggregate.keys]
    changed_keys = Distinct(Project(delta, tuple(names.output(k) for k in keys)))
    filter_keys, _ = names.copy(changed_keys)
    groups = replace(
        aggregate, child=Join("semi", child, filter_keys, None, tuple(zip(keys, columns(filter_keys), strict=True)))
    )
    all_keys, _ = names.copy(changed_keys)
    own = [k.column for k in aggregate.keys]
    joined = Join("left", all_keys, groups, None, tuple(zip(columns(all_keys), own, strict=True)))
    by: Mapping[str, Node] = dict(zip((c.name for c in own), columns(all_keys), strict=True))
    outputs = tuple(names.output(substituted(node, by)) for node in shown)
    return CompiledGroups(Project(joined, outputs), made, is_signed=False)
