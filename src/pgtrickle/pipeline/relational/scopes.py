"""Name resolution: items of FROM, columns merged by USING, outer queries, common table expressions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.nodes import Node, Reference, references
from pgtrickle.pipeline.relational.algebra import Output, Relation
from pgtrickle.pipeline.relational.computed import ComputedColumns
from pgtrickle.pipeline.relational.inputs import Catalog
from pgtrickle.pipeline.relational.naming import Names


@dataclass(frozen=True, slots=True)
class Rows:
    """A compiled query: its columns in order, by the names that the outer query uses.

    `inputs`: those whose columns it passes on, with the names in the result; their computed columns are `passed_on`,
    which an outer query that refers to them has to add to the outputs of `relation`.
    """

    relation: Relation
    columns: tuple[tuple[str, Reference], ...]
    inputs: tuple[Item, ...] = ()
    passed_on: tuple[Output, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """An item of FROM."""

    alias: str
    columns: tuple[tuple[str, Node], ...]
    others: tuple[tuple[str, str], ...] = ()  # names and types of columns that Spark cannot represent
    source: tuple[str, str] | None = None  # of an input: schema and name
    originals: Mapping[str, str] = field(default_factory=dict)  # of an input: its column of each name
    computed: Mapping[str, Reference] = field(default_factory=dict)  # by expression
    inputs: tuple[Item, ...] = ()  # of a subquery: those whose columns it passes on

    def input_of(self, name: str) -> Item | None:
        """The input that the column is of."""
        if self.source is not None:
            return self
        return next((each for each in self.inputs if name in each.originals), None)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(n for n, _ in (*self.columns, *self.others))


@dataclass(frozen=True, slots=True)
class CommonTable:
    query: exp.Expr
    names: tuple[str, ...]
    scope: Scope | None  # in which the query's names are resolved
    is_recursive: bool = False
    working: Rows | None = None  # in its own step: the working table


@dataclass
class Scope:
    """The names that are visible in a SELECT. `groups`: after GROUP BY, the column of each grouped column."""

    parent: Scope | None = None
    items: list[Item] = field(default_factory=list)
    merged: dict[str, Node] = field(default_factory=dict)
    tables: dict[str, CommonTable] = field(default_factory=dict)
    groups: Mapping[str, Reference] | None = None

    def column(self, table: str, name: str) -> Node:
        own = self._own(table, name)
        if own is not None:
            return self._grouped(own, name)
        if self.parent is None:
            raise SparkUnsupportedError("a name", f"{table}.{name}".lstrip(".") + " is not a column of FROM")
        return self.parent.column(table, name)

    def _own(self, table: str, name: str) -> Node | None:
        if not table and name in self.merged:
            return self.merged[name]
        matches = [
            node
            for item in self.items
            if not table or item.alias == table
            for column, node in item.columns
            if column == name
        ]
        if not matches:
            self._refuse_other(table, name)
        if len(matches) > 1:
            raise SparkUnsupportedError("a name", f"{name} is ambiguous")
        return matches[0] if matches else None

    def input_of(self, table: str, name: str) -> Item | None:
        """The input of the column; None if it is not a column of an input, or after GROUP BY."""
        if not table and name in self.merged:
            return None
        matches = [item for item in self.items if table in ("", item.alias) and name in item.names]
        if len(matches) != 1:
            return self.parent.input_of(table, name) if not matches and self.parent is not None else None
        return matches[0].input_of(name) if self.groups is None else None

    def _refuse_other(self, table: str, name: str) -> None:
        for item in self.items:
            for column, label in item.others:
                if column == name and table in ("", item.alias):
                    raise SparkUnsupportedError(f"a column of type {label}", f"{item.alias}.{name}")

    def _grouped(self, node: Node, name: str) -> Node:
        if self.groups is None:
            return node
        if isinstance(node, Reference) and node.name in self.groups:
            return self.groups[node.name]
        raise SparkUnsupportedError("a column that is not grouped", f"{name}, of {sorted(references(node))}")

    def common_table(self, name: str) -> CommonTable | None:
        if name in self.tables:
            return self.tables[name]
        return self.parent.common_table(name) if self.parent is not None else None


@dataclass(frozen=True)
class Context:
    """Shared by all parts of a compilation. `query` compiles a query inside a scope."""

    names: Names
    catalog: Catalog
    query: Callable[[Context, exp.Expr, Scope | None], Rows]
    view: Callable[[Context, str], Rows]
    recursion: Callable[[Context, str, CommonTable], Rows]
    computed: ComputedColumns | None = None  # None: expressions that Spark does not evaluate are refused
