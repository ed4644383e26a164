"""Row-level expressions over one input that PostgreSQL computes when a row is read. Pure.

Spark does not evaluate everything that PostgreSQL does. An expression over the columns of one relation, without
subqueries, aggregates and window functions, can instead be a column of that relation: PostgreSQL evaluates it for each
row that is read, and the query refers to the column. The smallest expressions that suffice are chosen, so that queries
share them; the name is derived from the text.

A column must exist before the query that reads it is compiled. So the query is compiled again until it needs no further
column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import sqlglot
from sqlglot import exp

from pgtrickle.pipeline.expressions.syntax import identifier
from pgtrickle.pipeline.relational.column_types import StoredColumn
from pgtrickle.pipeline.relational.source_text import text_over

Source = tuple[str, str]  # schema and name of a relation
# How the value of an expression over a relation (schema, name, expression) is stored; None if it must not be stored:
# `storable.py`.
Typed = Callable[[str, str, str], "StoredColumn | None"]


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """`expression`: PostgreSQL's text over the unqualified names of the relation's columns."""

    name: str
    expression: str
    stored: StoredColumn


@dataclass
class ComputedColumns:
    """The columns that a query needs, by relation and expression."""

    typed: Typed
    by_source: dict[Source, dict[str, ComputedColumn]] = field(default_factory=dict)
    unused: set[tuple[Source, str]] = field(default_factory=set)  # only parts of larger expressions

    def __len__(self) -> int:
        return sum(len(columns) for columns in self.by_source.values())

    def of(self, source: Source) -> Mapping[str, ComputedColumn]:
        return self.by_source.get(source, {})

    def request(self, source: Source, expression: str) -> ComputedColumn | None:
        """The column of the expression; it exists when the query is compiled again."""
        if (source, expression) in self.unused:
            return None
        known = self.of(source).get(expression)
        if known is not None:
            return known
        stored = self.typed(*source, expression)
        if stored is None or stored.type is None:
            return None
        made = ComputedColumn(f"computed_{sha256(expression.encode()).hexdigest()[:16]}", expression, stored)
        self.by_source.setdefault(source, {})[expression] = made
        return made

    def drop(self, used: frozenset[tuple[Source, str]]) -> bool:
        """Removes columns (relation, name) that the compiled query does not read; returns whether there were any."""
        unused = {
            (s, e) for s, columns in self.by_source.items() for e, c in columns.items() if (s, c.name) not in used
        }
        for source, expression in unused:
            del self.by_source[source][expression]
        self.unused |= unused
        return bool(unused)


def is_row_level(tree: exp.Expr) -> bool:
    """Whether it is more than a name or a constant, and contains no subquery, aggregate or window function."""
    if isinstance(tree, exp.Column | exp.Literal | exp.Identifier | exp.DataType | exp.Star):
        return False
    return tree.find(exp.Query, exp.AggFunc, exp.Window, exp.Filter, exp.WithinGroup, exp.Subquery, exp.Tuple) is None


def expression_text(tree: exp.Expr, originals: Mapping[str, str]) -> str | None:
    """`originals`: maps names of the query to names of the relation."""
    names = {c: _quoted(originals[identifier(c.this)]) for c in tree.find_all(exp.Column)}
    return text_over(tree, names)


def columns_read(expression: str) -> frozenset[str]:
    """The names of the columns in the text of an expression over one relation."""
    return frozenset(identifier(c.this) for c in sqlglot.parse_one(expression, read="postgres").find_all(exp.Column))


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
