"""Subqueries in expressions: each becomes a column that is joined to the rows of the outer query. Pure.

A condition that filters rows ([NOT] EXISTS, [NOT] IN, ANY, ALL as a conjunct of WHERE) becomes a semijoin or an
antijoin. Everywhere else the value or the truth value of the subquery is joined as a column.
"""

from __future__ import annotations

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.nodes import Call, Constant, Node, Reference, references, substituted
from pgtrickle.pipeline.expressions.resolve import case, construct, operator
from pgtrickle.pipeline.expressions.types import BOOL, INT8
from pgtrickle.pipeline.relational.algebra import (
    Aggregate,
    AggregateCall,
    AtMostOne,
    Distinct,
    Filter,
    Join,
    Output,
    Project,
    Relation,
    columns,
    free,
)
from pgtrickle.pipeline.relational.naming import Names
from pgtrickle.pipeline.relational.scopes import Rows
from pgtrickle.pipeline.relational.unnesting import Domain, is_single, parameters

_TRUE = Constant(True, BOOL)


def conjuncts(node: Node) -> list[Node]:
    if isinstance(node, Call) and node.entry.name == "AND":
        return [part for argument in node.arguments for part in conjuncts(argument)]
    return [node]


def conjunction(nodes: list[Node]) -> Node | None:
    result: Node | None = None
    for node in nodes:
        result = node if result is None else construct("AND", result, node)
    return result


def filtered(relation: Relation) -> tuple[Relation, list[Node]]:
    """The relation below the topmost filters, and their conditions."""
    parts: list[Node] = []
    while isinstance(relation, Filter):
        parts += conjuncts(relation.condition)
        relation = relation.child
    return relation, parts


# -- values


def scalar(names: Names, outer: Relation, rows: Rows) -> tuple[Relation, Node]:
    """The outer rows, with the value of the subquery."""
    if len(rows.columns) != 1:
        raise SparkUnsupportedError("a subquery of several columns as one value")
    ((_, value),) = rows.columns
    inner = rows.relation
    needed = parameters(outer, inner)
    if not needed:
        single = inner if isinstance(inner, Aggregate) and not inner.keys else AtMostOne(inner)
        return Join("left", outer, single), value
    folded = _by_equality(names, outer, inner, value)
    if folded is not None:
        return folded
    pushed, columns_of_domain = Domain(names, outer, needed).pushed(inner)
    if not is_single(inner):
        pushed = AtMostOne(pushed, tuple(columns_of_domain.values()))
    return Join("left", outer, pushed, None, tuple((p, columns_of_domain[p.name]) for p in needed)), value


def _by_equality(names: Names, outer: Relation, inner: Relation, value: Reference) -> tuple[Relation, Node] | None:
    """SELECT with aggregates WHERE inner = outer: grouped by the inner column and joined on it."""
    shown: Node = value
    if isinstance(inner, Project):
        shown = {o.column.name: o.node for o in inner.outputs}[value.name]
        inner = inner.child
    if not isinstance(inner, Aggregate) or inner.keys or not isinstance(inner.child, Filter):
        return None
    own = {c.name for c in columns(inner.child)}
    outer_names = {c.name for c in columns(outer)}
    keys: list[tuple[Node, Node]] = []
    rest: list[Node] = []
    below, parts = filtered(inner.child)
    for part in parts:
        pair = _equated(part, own)
        if not references(part) & outer_names:
            rest.append(part)
        elif pair is not None:
            keys.append(pair)
        else:
            return None
    kept = conjunction(rest)
    child = below if kept is None else Filter(below, kept)
    others = frozenset[str]().union(*(references(n) for _, call in inner.calls for n in call.arguments))
    if free(Aggregate(child, (), inner.calls)) & outer_names or not keys or others & outer_names:
        return None
    grouped = Aggregate(child, tuple(names.output(own_side) for own_side, _ in keys), inner.calls)
    tests = [operator("=", k.column, far) for k, (_, far) in zip(grouped.keys, keys, strict=True)]
    defaults: dict[str, Node] = {
        c.name: construct("COALESCE", c, Constant(0, INT8)) for c, call in inner.calls if call.name == "count"
    }
    return Join("left", outer, grouped, conjunction(tests)), substituted(shown, defaults)


def _equated(part: Node, own: set[str]) -> tuple[Node, Node] | None:
    """Both operands of `inner = outer`, the inner one first."""
    if not isinstance(part, Call) or part.entry.name != "=" or len(part.arguments) != 2:
        return None
    left, right = part.arguments
    for near, far in ((left, right), (right, left)):
        if references(near) and references(near) <= own and not references(far) & own:
            return near, far
    return None


def exists(names: Names, outer: Relation, rows: Rows) -> tuple[Relation, Node]:
    """The outer rows, with a column that tells whether the subquery has rows."""
    needed = parameters(outer, rows.relation)
    if not needed:
        count = names.column(INT8)
        counted = Aggregate(rows.relation, (), ((count, AggregateCall("count", (), INT8)),))
        return Join("left", outer, counted), operator(">", count, Constant(0, INT8))
    pushed, columns_of_domain = Domain(names, outer, needed).pushed(rows.relation)
    outputs = tuple(Output(c, c) for c in columns_of_domain.values())
    flag = names.output(_TRUE)
    marked = Project(Distinct(Project(pushed, outputs)), (*outputs, flag))
    joined = Join("left", outer, marked, None, tuple((p, columns_of_domain[p.name]) for p in needed))
    return joined, construct("IS TRUE", flag.column)


def quantified(
    names: Names, outer: Relation, left: list[Node], name: str, rows: Rows, *, is_all: bool
) -> tuple[Relation, Node]:
    """The outer rows, with the result of `left name ANY (subquery)`, or ALL: true, false or NULL.

    The comparison is evaluated for each distinct left operand and each row of the subquery, and aggregated.
    """
    test = compared(left, name, rows)
    needed = parameters(outer, rows.relation, *left)
    inner, columns_of_domain = (
        Domain(names, outer, needed).pushed(rows.relation) if needed else (rows.relation, dict[str, Reference]())
    )
    if is_all:
        test = construct("NOT", test)
    test = substituted(test, columns_of_domain)
    keys = tuple(names.output(columns_of_domain[p.name]) for p in needed)
    some, unknown = names.column(BOOL), names.column(BOOL)
    calls = (
        (some, AggregateCall("bool_or", (test,), BOOL)),
        (unknown, AggregateCall("bool_or", (construct("IS NULL", test),), BOOL)),
    )
    folded = Aggregate(inner, keys, calls)
    pairs = tuple((p, k.column) for p, k in zip(needed, keys, strict=True))
    joined = Join("left", outer, folded, None, pairs)
    value = case(
        [(construct("IS TRUE", some), _TRUE), (construct("IS TRUE", unknown), Constant(None, BOOL))],
        Constant(False, BOOL),
    )
    return joined, construct("NOT", value) if is_all else value


def compared(left: list[Node], name: str, rows: Rows) -> Node:
    """The comparison of the left operand with a row; rows are compared by = and <> only."""
    right = [column for _, column in rows.columns]
    if len(left) != len(right):
        raise SparkUnsupportedError("a comparison of rows", "the sides have different numbers of columns")
    if len(left) > 1 and name not in ("=", "<>"):
        raise SparkUnsupportedError(f"{name} between rows")
    tests = [operator(name, a, b) for a, b in zip(left, right, strict=True)]
    result = tests[0]
    for test in tests[1:]:
        result = construct("AND" if name == "=" else "OR", result, test)
    return result


# -- filters


def semijoin(names: Names, outer: Relation, rows: Rows, test: Node | None, *, is_anti: bool) -> Relation:
    """Rows of `outer` for which the subquery has a row (anti: no row) for which `test` is true."""
    inner, lifted, shown = _lifted(rows, {c.name for c in columns(outer)})
    if test is not None:
        lifted.append(substituted(test, shown))
    kind = "anti" if is_anti else "semi"
    if not parameters(outer, inner):
        return Join(kind, outer, inner, conjunction(lifted))
    needed = parameters(outer, rows.relation)
    pushed, columns_of_domain = Domain(names, outer, needed).pushed(rows.relation)
    return Join(kind, outer, pushed, test, tuple((p, columns_of_domain[p.name]) for p in needed))


def _lifted(rows: Rows, outer_names: set[str]) -> tuple[Relation, list[Node], dict[str, Node]]:
    """The subquery without its topmost conditions that read the outer rows; those conditions; and its columns as
    expressions over the remaining relation."""
    relation = rows.relation
    shown: dict[str, Node] = {}
    if isinstance(relation, Project):
        shown = {o.column.name: o.node for o in relation.outputs}
        relation = relation.child
    relation, parts = filtered(relation)
    kept = conjunction([p for p in parts if not references(p) & outer_names])
    inner = relation if kept is None else Filter(relation, kept)
    return inner, [p for p in parts if references(p) & outer_names], shown
