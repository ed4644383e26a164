"""Expressions of a SELECT: columns, subqueries, and already computed groups, aggregates and window functions. Pure."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.coercion import coerce
from pgtrickle.pipeline.expressions.nodes import Node, Reference
from pgtrickle.pipeline.expressions.resolve import construct, decided, resolve_inside, resolve_open
from pgtrickle.pipeline.expressions.syntax import OPERATORS, identifier
from pgtrickle.pipeline.expressions.types import BOOL
from pgtrickle.pipeline.relational import subqueries
from pgtrickle.pipeline.relational.algebra import Filter, Relation
from pgtrickle.pipeline.relational.computed import expression_text, is_row_level
from pgtrickle.pipeline.relational.scopes import Context, Rows, Scope

Inner = Callable[[exp.Expr], Node]


class Scalars:
    """Resolves expressions over the rows of `relation`, and joins subqueries to it.

    `known`: trees that are already computed: keys of GROUP BY, aggregates and window functions.
    """

    def __init__(
        self, context: Context, scope: Scope, relation: Relation, known: dict[exp.Expr, Node] | None = None
    ) -> None:
        self.context = context
        self.scope = scope
        self.relation = relation
        self.known = known if known is not None else {}

    def node(self, tree: exp.Expr) -> Node:
        return decided(self.open(tree))

    def open(self, tree: exp.Expr) -> Node:
        """A constant without a context stays UNKNOWN."""
        return resolve_open(tree, self._special)

    def condition(self, tree: exp.Expr) -> Node:
        return coerce(self.open(tree), BOOL)

    def filter(self, tree: exp.Expr) -> None:
        """Keeps the rows for which the condition is true."""
        for part in _conjuncts(tree):
            if not self._filtered_by_subquery(part, is_negated=False):
                condition = self.condition(part)
                self.relation = Filter(self.relation, condition)

    # -- what is not in the allow-list of expressions

    def _special(self, tree: exp.Expr, inner: Inner) -> Node | None:
        if self.known and (computed := self.known.get(tree)) is not None:
            return computed
        match tree:
            case exp.Column():
                if tree.args.get("db") is not None or isinstance(tree.this, exp.Star):
                    raise SparkUnsupportedError("a column", tree.sql("postgres"))
                return self.scope.column(identifier(tree.args.get("table")), identifier(tree.this))
            case exp.Subquery():
                self.relation, value = subqueries.scalar(self.context.names, self.relation, self._rows(tree))
                return value
            case exp.Exists():
                self.relation, value = subqueries.exists(self.context.names, self.relation, self._rows(tree.this))
                return value
            case exp.In() if tree.args.get("query") is not None:
                return self._quantified(tree.this, "=", tree.args["query"], inner, is_all=False)
        if type(tree) in OPERATORS and isinstance(tree.expression, exp.Any | exp.All):
            query = _query_of(tree.expression)
            if query is not None:
                is_all = isinstance(tree.expression, exp.All)
                return self._quantified(tree.this, OPERATORS[type(tree)], query, inner, is_all=is_all)
        if self.context.computed is not None and is_row_level(tree):
            return self._or_computed(tree)
        refuse(tree)
        return None

    def _or_computed(self, tree: exp.Expr) -> Node:
        """An expression for Spark, parts of which PostgreSQL may compute; else a column that PostgreSQL computes."""
        try:
            refuse(tree)
            return resolve_inside(tree, self._special)
        except SparkUnsupportedError:
            column = self._computed(tree)
            if column is None:
                raise
            return column

    def _computed(self, tree: exp.Expr) -> Node | None:
        """The computed column of the only input that the expression reads."""
        read = list(tree.find_all(exp.Column))
        items = [self.scope.input_of(identifier(c.args.get("table")), identifier(c.this)) for c in read]
        if not items or items[0] is None or any(item is not items[0] for item in items):
            return None
        item, computed_columns = items[0], self.context.computed
        text = expression_text(tree, item.originals)
        if text is None or item.source is None or computed_columns is None:
            return None
        column = computed_columns.request(item.source, text)
        if column is None or column.stored.type is None:
            return None
        # If the input does not have it yet, the query is compiled again.
        missing = Reference(column.name, column.stored.type, column.stored.is_decimal)
        return item.computed.get(text, missing)

    def _rows(self, tree: exp.Expr) -> Rows:
        return self.context.query(self.context, tree, self.scope)

    def _quantified(self, left: exp.Expr, name: str, query: exp.Expr, inner: Inner, *, is_all: bool) -> Node:
        sides = [inner(t) for t in _sides(left)]
        rows = self._rows(query)
        names = self.context.names
        self.relation, value = subqueries.quantified(names, self.relation, sides, name, rows, is_all=is_all)
        return value

    def _filtered_by_subquery(self, tree: exp.Expr, *, is_negated: bool) -> bool:
        """Turns a conjunct that tests the rows of a subquery into a semijoin or antijoin."""
        tree = tree.unnest()
        if isinstance(tree, exp.Not):
            return self._filtered_by_subquery(tree.this, is_negated=not is_negated)
        if tree in self.known:
            return False
        names = self.context.names
        if isinstance(tree, exp.Exists):
            self.relation = subqueries.semijoin(names, self.relation, self._rows(tree.this), None, is_anti=is_negated)
            return True
        if isinstance(tree, exp.In) and tree.args.get("query") is not None:
            left, name, query, is_all = tree.this, "=", tree.args["query"], False
        elif type(tree) in OPERATORS and isinstance(tree.expression, exp.Any | exp.All):
            left, name, query = tree.this, OPERATORS[type(tree)], _query_of(tree.expression)
            is_all = isinstance(tree.expression, exp.All)
            if query is None:
                return False
        else:
            return False
        sides = [self.open(t) for t in _sides(left)]
        rows = self._rows(query)
        test = subqueries.compared(sides, name, rows)
        if is_all:  # there is no row for which the comparison is not true
            test = construct("NOT", test)
        if is_all == is_negated:
            self.relation = subqueries.semijoin(names, self.relation, rows, test, is_anti=False)
        else:
            unless = construct("OR", test, construct("IS NULL", test))
            self.relation = subqueries.semijoin(names, self.relation, rows, unless, is_anti=True)
        return True


def refuse(tree: exp.Expr) -> None:
    """Refuses constructs that the allow-list would report by the parser's name."""
    match tree:
        case exp.Star():
            raise SparkUnsupportedError("*")
        case exp.Window():
            raise SparkUnsupportedError("a window function", f"in {tree.sql('postgres')[:80]}")
        case exp.Dot() | exp.Bracket():
            raise SparkUnsupportedError(
                "a field of a composite type or an element of an array", tree.sql("postgres")[:80]
            )
        case exp.Tuple():
            raise SparkUnsupportedError("a row as a value", tree.sql("postgres")[:80])
        case exp.Parameter() | exp.Placeholder():
            raise SparkUnsupportedError("a parameter")


def _conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    tree = tree.unnest()
    if isinstance(tree, exp.And):
        return [*_conjuncts(tree.this), *_conjuncts(tree.expression)]
    return [tree]


def _sides(tree: exp.Expr) -> list[exp.Expr]:
    tree = tree.unnest()
    return list(tree.expressions) if isinstance(tree, exp.Tuple) else [tree]


def _query_of(tree: exp.Expr) -> exp.Expr | None:
    """The subquery of ANY or ALL; None for an array."""
    inner = tree.this
    while isinstance(inner, exp.Paren | exp.Subquery):
        inner = inner.this
    return inner if isinstance(inner, exp.Query) else None
