"""Correlated subqueries as joins (Neumann and Kemper, "Unnesting arbitrary queries", BTW 2015). Pure.

A subquery that reads columns of an outer query is evaluated once for the distinct values of those columns (the domain):
they are joined to its relations, and every operator above adds them to its keys (GROUP BY, PARTITION BY, LIMIT per
value, DISTINCT, set operations). The result is joined back on them, where NULL equals NULL.
"""

from __future__ import annotations

from dataclasses import replace

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.nodes import Constant, Node, Reference, references, substituted
from pgtrickle.pipeline.expressions.resolve import construct
from pgtrickle.pipeline.expressions.types import BOOL, INT8
from pgtrickle.pipeline.relational.algebra import (
    Aggregate,
    AggregateCall,
    AtMostOne,
    Distinct,
    Filter,
    Generate,
    Inline,
    Join,
    OneRow,
    Output,
    Project,
    Recursive,
    Relation,
    Scan,
    SetOperation,
    SortKey,
    Top,
    UnionAll,
    Window,
    WindowCall,
    Working,
    columns,
    free,
)
from pgtrickle.pipeline.relational.naming import Names

Parameters = dict[str, Reference]  # name of the outer column -> the column of the subquery with its value


class Domain:
    """The distinct values of columns of `outer`."""

    def __init__(self, names: Names, outer: Relation, parameters: tuple[Reference, ...]) -> None:
        self.names = names
        self.parameters = parameters
        self._rows = Distinct(Project(outer, tuple(Output(p, p) for p in parameters)))
        self._by_name = {p.name for p in parameters}

    def copy(self) -> tuple[Relation, Parameters]:
        return self.names.copy(self._rows)

    def reads(self, relation: Relation) -> bool:
        return bool(free(relation) & self._by_name)

    def pushed(self, relation: Relation) -> tuple[Relation, Parameters]:
        """The relation, evaluated for each value of the domain, with the columns of the domain."""
        if not self.reads(relation):
            domain, parameters = self.copy()
            return (
                (domain, parameters) if isinstance(relation, OneRow) else (Join("inner", domain, relation), parameters)
            )
        match relation:
            case Filter():
                child, parameters = self.pushed(relation.child)
                return Filter(child, substituted(relation.condition, parameters)), parameters
            case Generate():
                child, parameters = self.pushed(relation.child)
                return replace(
                    relation, child=child, arguments=tuple(substituted(a, parameters) for a in relation.arguments)
                ), parameters
            case Project():
                child, parameters = self.pushed(relation.child)
                outputs = tuple(Output(o.column, substituted(o.node, parameters)) for o in relation.outputs)
                return Project(child, (*outputs, *(Output(c, c) for c in parameters.values()))), parameters
            case Join():
                return self._join(relation)
            case Aggregate():
                return self._aggregate(relation)
            case Window():
                child, parameters = self.pushed(relation.child)
                calls = tuple((c, _windowed(w, parameters)) for c, w in relation.calls)
                return Window(child, calls), parameters
            case Distinct():
                child, parameters = self.pushed(relation.child)
                return Distinct(child), parameters
            case Top():
                child, parameters = self.pushed(relation.child)
                partition = (*(substituted(n, parameters) for n in relation.partition), *parameters.values())
                order = tuple(replace(k, node=substituted(k.node, parameters)) for k in relation.order)
                return replace(relation, child=child, order=order, partition=partition), parameters
            case AtMostOne():
                child, parameters = self.pushed(relation.child)
                return AtMostOne(child, (*relation.partition, *parameters.values())), parameters
            case UnionAll():
                return self._union(relation)
            case SetOperation():
                return self._set_operation(relation)
            case Inline():
                return self._inline(relation)
            case Recursive():
                raise SparkUnsupportedError("WITH RECURSIVE in a correlated subquery")
            case OneRow() | Scan() | Working():
                raise AssertionError("reads no column")

    def _inline(self, relation: Inline) -> tuple[Relation, Parameters]:
        domain, parameters = self.copy()
        branches: list[Relation] = []
        for row in relation.rows:
            made = tuple(
                Output(self.names.column(c.type, native=c.native), substituted(n, parameters))
                for c, n in zip(relation.columns, row, strict=True)
            )
            branches.append(Project(domain, (*made, *(Output(c, c) for c in parameters.values()))))
        return UnionAll(tuple(branches), (*relation.columns, *parameters.values())), parameters

    def _join(self, join: Join) -> tuple[Relation, Parameters]:
        of_left, of_right = self.reads(join.left), self.reads(join.right)
        needs_left = join.kind in ("left", "full", "semi", "anti") or of_left or not of_right
        needs_right = join.kind in ("right", "full") or of_right
        if join.kind == "right" and not of_left:
            needs_left = False
        left, left_columns = self.pushed(join.left) if needs_left else (join.left, {})
        right, right_columns = self.pushed(join.right) if needs_right else (join.right, {})
        same = join.same
        if left_columns and right_columns:
            same = (*same, *((left_columns[p.name], right_columns[p.name]) for p in self.parameters))
        known = left_columns or right_columns
        condition = None if join.condition is None else substituted(join.condition, known)
        made = Join(join.kind, left, right, condition, _pairs(same, known))
        if join.kind != "full" or not (left_columns and right_columns):
            return made, (right_columns if join.kind == "right" and right_columns else known)
        outputs = [
            self.names.output(construct("COALESCE", left_columns[p.name], right_columns[p.name]))
            for p in self.parameters
        ]
        kept = [c for c in columns(made) if c not in (*left_columns.values(), *right_columns.values())]
        merged = {p.name: o.column for p, o in zip(self.parameters, outputs, strict=True)}
        return Project(made, (*(Output(c, c) for c in kept), *outputs)), merged

    def _aggregate(self, relation: Aggregate) -> tuple[Relation, Parameters]:
        child, parameters = self.pushed(relation.child)
        calls = tuple((c, _called(call, parameters)) for c, call in relation.calls)
        keys = tuple(Output(k.column, substituted(k.node, parameters)) for k in relation.keys)
        added = [self.names.output(column) for column in parameters.values()]
        grouped = Aggregate(child, (*keys, *added), calls)
        added_columns = {p: o.column for p, o in zip(parameters, added, strict=True)}
        if keys:
            return grouped, added_columns
        return self._with_empty_groups(grouped, added_columns)

    def _with_empty_groups(self, grouped: Aggregate, added_columns: Parameters) -> tuple[Relation, Parameters]:
        """An aggregate without keys returns a row also for an empty input: NULLs, and 0 for counts."""
        domain, parameters = self.copy()
        renamed, outer = self.names.copy(grouped)
        pairs = tuple((parameters[p.name], outer[added_columns[p.name].name]) for p in self.parameters)
        joined = Join("left", domain, renamed, None, pairs)
        outputs = [Output(c, c) for c in parameters.values()]
        for column, call in grouped.calls:
            value: Node = outer[column.name]
            if call.name == "count":
                value = construct("COALESCE", value, Constant(0, INT8))
            outputs.append(Output(column, value))
        return Project(joined, tuple(outputs)), parameters

    def _union(self, relation: UnionAll) -> tuple[Relation, Parameters]:
        made = [self._positional(branch) for branch in relation.branches]
        added = {p.name: self.names.column(p.type, native=p.native) for p in self.parameters}
        return UnionAll(tuple(made), (*relation.columns, *added.values())), added

    def _set_operation(self, relation: SetOperation) -> tuple[Relation, Parameters]:
        added = {p.name: self.names.column(p.type, native=p.native) for p in self.parameters}
        left, right = self._positional(relation.left), self._positional(relation.right)
        shown = (*relation.columns, *added.values())
        return replace(relation, left=left, right=right, columns=shown), added

    def _positional(self, branch: Relation) -> Relation:
        """The branch with the parameters after its own columns."""
        pushed, parameters = self.pushed(branch)
        kept = (*columns(branch), *(parameters[p.name] for p in self.parameters))
        return Project(pushed, tuple(Output(c, c) for c in kept))


def _pairs(same: tuple[tuple[Node, Node], ...], parameters: Parameters) -> tuple[tuple[Node, Node], ...]:
    return tuple((substituted(a, parameters), substituted(b, parameters)) for a, b in same)


def _called(call: AggregateCall, parameters: Parameters) -> AggregateCall:
    return replace(
        call,
        arguments=tuple(substituted(a, parameters) for a in call.arguments),
        where=None if call.where is None else substituted(call.where, parameters),
        order=_sorted(call.order, parameters),
    )


def _sorted(order: tuple[SortKey, ...], parameters: Parameters) -> tuple[SortKey, ...]:
    return tuple(replace(k, node=substituted(k.node, parameters)) for k in order)


def _windowed(window: WindowCall, parameters: Parameters) -> WindowCall:
    partition = (*(substituted(n, parameters) for n in window.partition), *parameters.values())
    return replace(
        window, call=_called(window.call, parameters), partition=partition, order=_sorted(window.order, parameters)
    )


def parameters(outer: Relation, inner: Relation, *nodes: Node) -> tuple[Reference, ...]:
    """The columns of `outer` that `inner` or the nodes read."""
    read = free(inner).union(*(references(n) for n in nodes))
    return tuple(c for c in columns(outer) if c.name in read)


def dependent_join(names: Names, kind: str, left: Relation, right: Relation, condition: Node | None) -> Relation:
    """A join whose right side may read columns of the left one (LATERAL)."""
    needed = parameters(left, right)
    if not needed:
        return Join(kind, left, right, condition)
    if isinstance(right, Generate) and isinstance(right.child, OneRow):  # evaluated for each row, without a join
        if kind == "inner":
            generated = replace(right, child=left)
            return generated if condition is None else Filter(generated, condition)
        if kind == "left" and (condition is None or condition == Constant(True, BOOL)):
            return replace(right, child=left, keeps=True)
    pushed, columns_of_domain = Domain(names, left, needed).pushed(right)
    return Join(kind, left, pushed, condition, tuple((p, columns_of_domain[p.name]) for p in needed))


def is_single(relation: Relation) -> bool:
    """Whether it always returns at most one row."""
    match relation:
        case Aggregate():
            return not relation.keys
        case Project() | Filter() | Distinct() | Window():
            return is_single(relation.child)
        case Top():
            return (relation.count is not None and relation.count <= 1 and not relation.has_ties) or is_single(
                relation.child
            )
        case OneRow() | AtMostOne():
            return True
        case _:
            return False
