"""A stream table that is a recursion: its delta is computed from its stored rows and the deltas of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgtrickle.model.catalog import Column
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import HASHED
from pgtrickle.pipeline.codec import texts
from pgtrickle.pipeline.delta_layout import ROWS, DeltaLayout
from pgtrickle.pipeline.differentiate import general, recursion
from pgtrickle.pipeline.differentiate.linear import ChangedSource, W
from pgtrickle.pipeline.differentiate.recursion import RecursionPlan
from pgtrickle.pipeline.plan.nodes import Block, from_items, plain_sql
from pgtrickle.pipeline.render.delta_rows import current_rows
from pgtrickle.pipeline.templates.load_query import LoadQuery, rows_query


@dataclass(frozen=True, slots=True)
class RecursionTemplate:
    """WITH RECURSIVE whose rows are stored with all their columns."""

    plan: Block
    recursion: RecursionPlan
    columns: tuple[Column, ...]
    relids: frozenset[int]
    stored: str
    slots: DeltaLayout = ROWS

    @property
    def row(self) -> str:
        return texts("q", self.columns)

    @property
    def lookups(self) -> tuple[str, ...]:
        """The stored columns by which the recursive term finds the rows that it joins with."""
        names = self.recursion.node.names
        return tuple(self.columns[self.recursion.columns[names.index(k)]].name for k in self.recursion.keys)

    def load_statement(self) -> str:
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        return f"SELECT {self.row} FROM ({current_rows(self.plan)}) AS q({names})"

    def load_query(self) -> LoadQuery:
        return rows_query(current_rows(self.plan), self.columns)

    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str:
        statement = general.new_statement(changed)
        names = [c.name for c in self.columns]
        terms = recursion.delta(statement, self.recursion, self.stored, names, general.delta)
        shown = ", ".join(quote_ident(n) for n in (*self.recursion.node.output_names, "__pgt_w"))
        (part,) = from_items(self.plan)
        source = f"({' UNION ALL '.join(f'({sql})' for sql in terms)}) AS {part.alias}({shown})"
        listed = ", ".join([*(f"c{i}" for i in range(len(names))), W])
        columns = ", ".join([*(plain_sql(c.text) for c in self.plan.columns), f"{part.alias}.{W}"])
        return f"{statement.with_clause()}SELECT q.{W}, {self.row} FROM (SELECT {columns} FROM {source}) AS q({listed})"


def compile_recursion(
    plan: Block, columns: Sequence[Column], relids: frozenset[int], stored: str
) -> RecursionTemplate | None:
    """None where the delta cannot be computed from the stored rows, or a key column has no hash index type."""
    plan_of_recursion = recursion.recursion_plan(plan)
    if plan_of_recursion is None:
        return None
    compared = [
        columns[plan_of_recursion.columns[plan_of_recursion.node.names.index(k)]] for k in plan_of_recursion.keys
    ]
    if any(c.typid not in HASHED for c in compared):
        return None
    return RecursionTemplate(plan, plan_of_recursion, tuple(columns), relids, stored)
