"""The columns of a replica, and the statements that read them from the table and from its change buffer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.db import catalog
from pgtrickle.errors import SourceChangedError
from pgtrickle.model.flow import Window
from pgtrickle.model.identifiers import buffer_name, qualified, quote_ident
from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.relational.column_types import StoredColumn, stored_column
from pgtrickle.replica.values import Computed, ReplicaColumn, physical_names

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.model.catalog import Relation


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table as a replica stores them, and how to read them."""

    relation: Relation
    columns: tuple[ReplicaColumn, ...]
    key: tuple[str, ...]
    stored: tuple[StoredColumn, ...]

    def from_table(self) -> str:
        """The rows of the table. `split` cuts it by its pages."""
        values = [
            column.read(f"t.{quote_ident(self._name(c))}" if c.attnum is not None else f"({c.expression})")
            for c, column in zip(self.columns, self.stored, strict=True)
        ]
        return f"SELECT {', '.join(values)} FROM {qualified(self.relation.schema, self.relation.name)} AS t"

    def from_buffer(self, window: Window) -> str:
        """Weight and image of each change; the weight of a TRUNCATE is 0."""
        values = [
            column.read(f"b.c{c.attnum}" if c.attnum is not None else f"({c.expression})")
            for c, column in zip(self.columns, self.stored, strict=True)
        ]
        weight = "CASE b.action WHEN 'I' THEN 1 WHEN 'D' THEN -1 ELSE 0 END"
        return (
            f"SELECT {weight}, {', '.join(values)} FROM {buffer_name(self.relation.relid)} AS b{self._named()} "
            f"WHERE {window.predicate('b.xid')}"
        )

    def _named(self) -> str:
        """The row image as a row of the table, for expressions; `t` as in the table's own statement."""
        if all(c.attnum is not None for c in self.columns):
            return ""
        images = [f"b.c{c.attnum}::{c.type} AS {quote_ident(self._name(c))}" for c in self.columns if c.attnum]
        return f" CROSS JOIN LATERAL (SELECT {', '.join(images)}) AS t"

    def _name(self, column: ReplicaColumn) -> str:
        return next(c.name for c in self.relation.columns if c.attnum == column.attnum)


def key_of(relation: Relation) -> tuple[int, ...]:
    """Attribute numbers that identify a row. An index of a table does not cover its children."""
    return () if relation.kind == "r" and relation.has_children else relation.key


def layout(
    conn: Connection,
    relation: Relation,
    attnums: Collection[int],
    computed: Sequence[Computed],
    as_text: Collection[str],
) -> Layout:
    """`as_text`: names of columns that have had a value without an exact columnar form."""
    key = key_of(relation)
    wanted = {*attnums, *key, *(a for c in computed for a in c.attnums)}
    found = [c for c in relation.columns if c.attnum in wanted]
    if missing := wanted - {c.attnum for c in found}:
        raise SourceChangedError(f"{relation.schema}.{relation.name} lacks columns {sorted(missing)}")
    names = [f"c{c.attnum}" for c in found] + [c.name for c in computed]
    texts = [f"t.{quote_ident(c.name)}" for c in found] + [f"({c.expression})" for c in computed]
    # A table without columns, or a query that only counts rows: one column is stored nevertheless.
    query = f"SELECT {', '.join(texts)} FROM {qualified(relation.schema, relation.name)} AS t"
    described = catalog.describe(conn, query) if texts else []
    types = [SqlType(*row) for row in described]
    stored = [stored_column(type_, as_text=name in as_text) for name, type_ in zip(names, types, strict=True)]
    shown = physical_names([*zip(names, [c.name for c in found] + [c.name for c in computed], strict=True)])
    columns = [
        ReplicaColumn(name, physical, each.ddl, type_.name)
        for name, physical, each, type_ in zip(names, shown, stored, types, strict=True)
    ]
    plain = [
        ReplicaColumn(c.name, c.physical, c.ddl, c.type, attnum=column.attnum)
        for c, column in zip(columns, found, strict=False)
    ]
    rest = [
        ReplicaColumn(c.name, c.physical, c.ddl, c.type, expression=each.expression)
        for c, each in zip(columns[len(found) :], computed, strict=True)
    ]
    return Layout(relation, (*plain, *rest), tuple(f"c{a}" for a in key), tuple(stored))
