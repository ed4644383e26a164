"""The entry point of the compiler, from a text to a compiled query. Only building a DataFrame needs Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgtrickle.pipeline.expressions import types
from pgtrickle.pipeline.expressions.nodes import Reference
from pgtrickle.pipeline.expressions.types import PgType
from pgtrickle.pipeline.relational.algebra import Output, Project, Relation, Scan, children, most_rows
from pgtrickle.pipeline.relational.computed import ComputedColumn, ComputedColumns, Typed
from pgtrickle.pipeline.relational.delta import Deltas
from pgtrickle.pipeline.relational.group_delta import CompiledGroups, group_changes
from pgtrickle.pipeline.relational.inputs import Catalog
from pgtrickle.pipeline.relational.naming import Names
from pgtrickle.pipeline.relational.query import compile_text
from pgtrickle.pipeline.relational.scopes import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Inputs = Callable[[str, str], DataFrame]
    StatesOfInputs = Callable[[str, str, str], DataFrame]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    name: str
    type: PgType


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """`columns`: of the result, with PostgreSQL's types. `computed`: by input, columns that it must have besides its
    own, each an expression that PostgreSQL evaluates when it reads a row."""

    rows: Rows
    names: Names
    computed: Mapping[tuple[str, str], tuple[ComputedColumn, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[OutputColumn, ...]:
        return tuple(OutputColumn(name, column.type) for name, column in self.rows.columns)

    @property
    def inputs(self) -> frozenset[tuple[str, str]]:
        """The relations that are read, by schema and name."""
        return frozenset(_scanned(self.rows.relation))

    @property
    def most_rows(self) -> int | None:
        """An upper bound of the number of rows that follows from the query."""
        return most_rows(self.rows.relation)

    def build(self, session: SparkSession, inputs: Inputs) -> DataFrame:
        """The result, in encoded form.

        `inputs` returns the DataFrame of a relation: columns by their names, each in the form of its InputColumn. The
        session must have the settings of `expressions.CONF`.
        """
        from pgtrickle.pipeline.relational.build import Builder

        shown = tuple(Output(column, column) for _, column in self.rows.columns)
        names = [n for n, _ in self.rows.columns]
        return Builder(session, lambda schema, name, _: inputs(schema, name)).result(
            Project(self.rows.relation, shown), names
        )

    def delta(self, changed: frozenset[tuple[str, str]]) -> CompiledDelta | None:
        """The delta between two states, if only these inputs have changes; None if the result does not change."""
        deltas = Deltas(self.names, changed)
        relation = deltas.smallest(self.rows.relation)
        return None if relation is None else CompiledDelta(Rows(relation, self.rows.columns), deltas.weight)

    def group_changes(self, changed: frozenset[tuple[str, str]], *, signed: bool) -> CompiledGroups | None:
        """The delta of the groups of an aggregate; None if the result does not change."""
        return group_changes(self.rows, self.names, changed, signed=signed)


@dataclass(frozen=True, slots=True)
class CompiledDelta:
    """A query's delta: its columns, and the weight of each row in the column `__pgt_w`."""

    rows: Rows
    weight: Reference

    def build(self, session: SparkSession, inputs: StatesOfInputs) -> DataFrame:
        """`inputs` returns a relation's state: "old", "new", or "changes", which has the column `__pgt_w`.

        Changes must be net: a row that was inserted and deleted between both states is no change.
        """
        from pgtrickle.pipeline.relational.build import Builder

        shown = tuple(Output(column, column) for _, column in self.rows.columns)
        names = [n for n, _ in self.rows.columns]
        return Builder(session, inputs).net(Project(self.rows.relation, shown), names, self.weight)


def compile_query(
    sql: str,
    catalog: Catalog,
    *,
    collation: str = "",
    date_style: str = "",
    time_zone: str = "",
    computed: Typed | None = None,
) -> CompiledQuery:
    """`sql`: a SELECT as pg_get_viewdef prints it under the path pg_catalog, pg_temp.

    `collation`: the default one of the database; text is ordered only under C and C.UTF-8. `date_style`, `time_zone`:
    settings of the author's session; casts of times to text are evaluated under ISO, what depends on the time zone
    under UTC. "" if one is not known. `computed`: how the value of an expression over an input is stored; then
    expressions over one input that Spark does not evaluate become columns of that input (`CompiledQuery.computed`).

    Raises SparkUnsupportedError with the name of the first construct that is not supported.
    """
    requested = None if computed is None else ComputedColumns(computed)
    rows, names = copy_context().run(_compiled, sql, catalog, requested, (collation, date_style, time_zone))
    by_source = requested.by_source if requested is not None else {}
    return CompiledQuery(
        rows, names, {source: tuple(columns.values()) for source, columns in by_source.items() if columns}
    )


def _compiled(
    sql: str, catalog: Catalog, requested: ComputedColumns | None, settings: tuple[str, str, str]
) -> tuple[Rows, Names]:
    for variable, value in zip((types.default_collation, types.date_style, types.time_zone), settings, strict=True):
        variable.set(value)
    return compile_text(sql, catalog, requested)


def _scanned(relation: Relation) -> list[tuple[str, str]]:
    if isinstance(relation, Scan):
        return [(relation.schema, relation.name)]
    return [scan for child in children(relation) for scan in _scanned(child)]
