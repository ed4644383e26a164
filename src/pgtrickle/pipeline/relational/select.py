"""SELECT: FROM, WHERE, groups, window functions, output, DISTINCT, ORDER BY with LIMIT, in PostgreSQL's order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.nodes import Constant, Node, Reference, references
from pgtrickle.pipeline.expressions.resolve import decided
from pgtrickle.pipeline.expressions.syntax import identifier, integer
from pgtrickle.pipeline.expressions.types import INT4
from pgtrickle.pipeline.relational import aggregate_syntax, aggregates, grouping, windows
from pgtrickle.pipeline.relational.algebra import (
    Aggregate,
    AggregateCall,
    Distinct,
    Output,
    Project,
    Relation,
    SortKey,
    Top,
    UnionAll,
    columns,
)
from pgtrickle.pipeline.relational.from_clause import FromClause
from pgtrickle.pipeline.relational.ordering import sort_keys
from pgtrickle.pipeline.relational.scalars import Scalars
from pgtrickle.pipeline.relational.scopes import Context, Item, Rows, Scope

_READ = {"expressions", "from_", "joins", "where", "group", "having", "windows", "distinct", "order", "limit", "offset"}
_READ |= {"with_", "kind"}


@dataclass(frozen=True, slots=True)
class Limit:
    count: int | None
    offset: int
    has_ties: bool


def compile_select(context: Context, tree: exp.Select, scope: Scope) -> Rows:
    for name, value in tree.args.items():
        if name not in _READ and value:
            raise SparkUnsupportedError(name.upper().replace("_", " "))
    return _Select(context, tree, scope).compile()


class _Select:
    def __init__(self, context: Context, tree: exp.Select, scope: Scope) -> None:
        self.context = context
        self.names = context.names
        self.tree = tree
        self.scope = scope
        self.order: list[exp.Expr] = list(tree.args["order"].expressions) if tree.args.get("order") else []
        self.limit = limit_of(tree)
        distinct = tree.args.get("distinct")
        self.is_distinct = distinct is not None and distinct.args.get("on") is None
        self.distinct_on: list[exp.Expr] = []
        if distinct is not None and distinct.args.get("on") is not None:
            on = distinct.args["on"]
            self.distinct_on = list(on.expressions) if isinstance(on, exp.Tuple) else [on.unnest()]
        if self.limit is None and not self.distinct_on:
            self.order = []  # the rows of a table have no order

    def compile(self) -> Rows:
        relation = FromClause(self.context, self.scope).read(self.tree)
        scalars = Scalars(self.context, self.scope, relation)
        if self.tree.args.get("where") is not None:
            scalars.filter(self.tree.args["where"].this)
        items = [_item(t) for t in self.tree.expressions]
        shown = [tree for _, tree in items]
        having = self.tree.args["having"].this if self.tree.args.get("having") is not None else None
        named = {identifier(w.this): w for w in self.tree.args.get("windows") or ()}
        all_trees = [
            *shown,
            *self.order,
            *self.distinct_on,
            *([having] if having is not None else []),
            *named.values(),
        ]
        calls = list(dict.fromkeys(aggregate_syntax.aggregates_in(all_trees)))
        if self.tree.args.get("group") is not None or calls or having is not None:
            scalars = _Groups(self.context, self.scope, scalars, self.tree, all_trees).compile(calls)
        if having is not None:
            scalars.filter(having)
        window_trees = list(windows.windows_in([*shown, *self.order, *self.distinct_on]))
        if window_trees:
            windows.WindowFunctions(scalars, named).compute(window_trees)
        return self._finished(scalars, items)

    def _finished(self, scalars: Scalars, items: Sequence[tuple[str, exp.Expr]]) -> Rows:
        outputs = [self.names.output(scalars.node(tree)) for _, tree in items]
        by_tree = {tree.unnest(): o.column for (_, tree), o in zip(items, outputs, strict=True)}
        hidden: list[Output] = []

        def column(tree: exp.Expr) -> Reference:
            """The output column of the sort key, else an additional column for sorting."""
            place = integer(tree) if isinstance(tree, exp.Literal) else None
            if place is not None:
                return outputs[place - 1].column
            known = by_tree.get(tree.unnest())
            if known is None:
                hidden.append(self.names.output(scalars.node(tree)))
                known = hidden[-1].column
            return known

        order = sort_keys(self.order, column)
        unique = [column(tree) for tree in self.distinct_on]
        if self.is_distinct and hidden:
            raise SparkUnsupportedError("ORDER BY of an expression that DISTINCT does not output")
        relation: Relation = Project(scalars.relation, (*outputs, *hidden))
        if self.is_distinct:
            relation = Distinct(relation)
        if unique:
            relation = Top(relation, order, 1, partition=tuple(unique))
        if self.limit is not None:
            relation = limited(relation, order, self.limit)
        if hidden:
            relation = Project(relation, tuple(Output(o.column, o.column) for o in outputs))
        shown = tuple((name, o.column) for (name, _), o in zip(items, outputs, strict=True))
        return Rows(relation, shown, *self._passed_on(items))

    def _passed_on(self, items: Sequence[tuple[str, exp.Expr]]) -> tuple[tuple[Item, ...], tuple[Output, ...]]:
        """The inputs whose columns are output, and their computed columns. DISTINCT would take these for values of its
        rows, and below a LIMIT the projection is not the outermost relation."""
        if self.context.computed is None or self.is_distinct or self.distinct_on or self.limit is not None:
            return (), ()
        own = {id(each) for item in self.scope.items for each in (item, *item.inputs)}
        found: dict[int, tuple[Item, dict[str, str]]] = {}
        for name, tree in items:
            if isinstance(tree, exp.Column) and not isinstance(tree.this, exp.Star):
                column = identifier(tree.this)
                item = self.scope.input_of(identifier(tree.args.get("table")), column)
                if item is not None and id(item) in own:
                    found.setdefault(id(item), (item, {}))[1][name] = item.originals[column]
        inputs: list[Item] = []
        outputs: list[Output] = []
        for item, originals in found.values():
            made = {expression: self.names.output(column) for expression, column in item.computed.items()}
            outputs += made.values()
            computed = {expression: output.column for expression, output in made.items()}
            inputs.append(Item(item.alias, (), source=item.source, originals=originals, computed=computed))
        return tuple(inputs), tuple(outputs)


class _Groups:
    """GROUP BY. Several grouping sets are a union with one branch per set."""

    def __init__(
        self, context: Context, scope: Scope, rows: Scalars, tree: exp.Select, all_trees: Sequence[exp.Expr]
    ) -> None:
        self.context = context
        self.names = context.names
        self.scope = scope
        self.rows = rows
        self.group = tree.args.get("group")
        self.shown = tree.expressions
        self._all_trees = all_trees

    def compile(self, aggregate_trees: Sequence[exp.Expr]) -> Scalars:
        sets = grouping.sets(self.group) if self.group is not None else [()]
        sets = [tuple(self._positioned(t) for t in keys) for keys in sets]
        trees = list(dict.fromkeys(tree for keys in sets for tree in keys))
        nodes = {tree: self.rows.node(tree) for tree in trees}
        calls = aggregates.Calls(self.names)
        known: dict[exp.Expr, Node] = {
            tree: self._aggregate(tree, calls) for tree in aggregate_trees if not _is_grouping(tree)
        }
        dependent = self._dependent(trees, nodes)
        markers = list(dict.fromkeys(g for tree in self._all_trees for g in tree.find_all(exp.Grouping)))
        if len(sets) == 1 and not markers:
            keys = {tree: self.names.output(nodes[tree]) for tree in trees}
            extra = tuple((self.names.column(n.type, native=n.native), _any(n)) for n in dependent)
            relation: Relation = Aggregate(self.rows.relation, tuple(keys.values()), (*calls.all, *extra))
            columns_: dict[exp.Expr, Reference] = {tree: o.column for tree, o in keys.items()}
            groups = {n.name: c for n, (c, _) in zip(dependent, extra, strict=True)}
        else:
            relation, columns_ = self._union(sets, nodes, calls, markers, known)
            groups = {}
        for tree, node in nodes.items():
            known[tree] = columns_[tree]
            if isinstance(node, Reference):
                groups[node.name] = columns_[tree]
        self.scope.groups = groups
        return Scalars(self.context, self.scope, relation, known)

    def _positioned(self, tree: exp.Expr) -> exp.Expr:
        place = integer(tree) if isinstance(tree, exp.Literal) else None
        return tree if place is None else _item(self.shown[place - 1])[1].unnest()

    def _aggregate(self, tree: exp.Expr, calls: aggregates.Calls) -> Node:
        written = aggregate_syntax.read(tree)
        arguments = [decided(self.rows.open(a)) for a in written.arguments]
        where = None if written.where is None else self.rows.condition(written.where)
        order = sort_keys(written.order, self.rows.node)
        read = frozenset[str]().union(*(references(a) for a in arguments))
        if read and not read & {c.name for c in columns(self.rows.relation)}:
            raise SparkUnsupportedError("an aggregate of an outer query")
        return aggregates.value(written, arguments, where, order, calls.column)

    def _dependent(self, trees: Sequence[exp.Expr], nodes: dict[exp.Expr, Node]) -> list[Reference]:
        """Ungrouped columns that depend functionally on a grouped primary key, as PostgreSQL has checked."""
        grouped = {n.name for n in nodes.values() if isinstance(n, Reference)}
        dependent: dict[str, Reference] = {}
        for tree in _outside_aggregates(self._all_trees, set(trees)):
            node = self.rows.open(tree)
            if isinstance(node, Reference) and node.name not in grouped and node in columns(self.rows.relation):
                dependent[node.name] = node
        return list(dependent.values())

    def _union(
        self,
        sets: Sequence[tuple[exp.Expr, ...]],
        nodes: dict[exp.Expr, Node],
        calls: aggregates.Calls,
        markers: Sequence[exp.Expr],
        known: dict[exp.Expr, Node],
    ) -> tuple[Relation, dict[exp.Expr, Reference]]:
        """One branch per set: its keys, NULL for the others; aggregates; and which keys are missing."""
        shown = {tree: self.names.output(node).column for tree, node in nodes.items()}
        marked = {tree: self.names.column(INT4) for tree in markers}
        branches: list[Relation] = []
        for keys in sets:
            made = {tree: self.names.output(nodes[tree]) for tree in keys}
            own = tuple((self.names.column(c.type, native=c.native), call) for c, call in calls.all)
            branch = Aggregate(self.rows.relation, tuple(made.values()), own)
            outputs = [
                self._handed(column, made[tree].column if tree in made else Constant(None, column.type))
                for tree, column in shown.items()
            ]
            outputs += [Output(self.names.column(c.type, native=c.native), c) for c, _ in own]
            for tree in markers:
                bits = "".join("0" if e.unnest() in made else "1" for e in tree.expressions)
                outputs.append(self.names.output(Constant(int(bits, 2), INT4)))
            branches.append(Project(branch, tuple(outputs)))
        known.update(marked)
        together = (*shown.values(), *(c for c, _ in calls.all), *marked.values())
        return UnionAll(tuple(branches), together), shown

    def _handed(self, column: Reference, node: Node) -> Output:
        return Output(self.names.column(column.type, native=column.native), node)


def _any(node: Reference) -> AggregateCall:
    return AggregateCall("any_value", (node,), node.type)


def _is_grouping(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Grouping)


def _outside_aggregates(trees: Sequence[exp.Expr], keys: set[exp.Expr]) -> list[exp.Column]:
    """Columns that are not in an aggregate, a grouped expression or a subquery."""
    outside: list[exp.Column] = []
    for tree in trees:
        if tree in keys or isinstance(tree, exp.Query) or aggregate_syntax.is_aggregate(tree):
            continue
        if isinstance(tree, exp.Column):
            outside.append(tree)
        elif isinstance(tree, exp.Window):
            function = tree.this.this if isinstance(tree.this, exp.Filter) else tree.this
            below = [*function.iter_expressions(), *(e for e in tree.iter_expressions() if e is not tree.this)]
            outside += _outside_aggregates(below, keys)
        else:
            outside += _outside_aggregates(list(tree.iter_expressions()), keys)
    return outside


def _item(tree: exp.Expr) -> tuple[str, exp.Expr]:
    """Name and expression of an output column."""
    if isinstance(tree, exp.Alias):
        return identifier(tree.args["alias"]), tree.this
    if isinstance(tree, exp.Column):
        return identifier(tree.this), tree
    return "?column?", tree


def limit_of(tree: exp.Expr) -> Limit | None:
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    if limit is None and offset is None:
        return None
    skipped = _count(offset.expression, "OFFSET") if offset is not None else 0
    if limit is None:
        return Limit(None, skipped or 0, False)
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        if options is not None and options.args.get("percent"):
            raise SparkUnsupportedError("FETCH PERCENT")
        ties = bool(options is not None and options.args.get("with_ties"))
        count = limit.args.get("count")
        return Limit(1 if count is None else _count(count, "FETCH"), skipped or 0, ties)
    return Limit(_count(limit.expression, "LIMIT"), skipped or 0, False)


def _count(tree: exp.Expr, what: str) -> int | None:
    inner = tree.unnest()
    while isinstance(inner, exp.Cast | exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.Null):
        return None
    number = integer(inner)
    if number is None:
        raise SparkUnsupportedError(f"{what} of an expression")
    return number


def limited(relation: Relation, order: tuple[SortKey, ...], limit: Limit) -> Relation:
    return Top(relation, order, limit.count, limit.offset, limit.has_ties)
