"""A stream table that is a recursion: its rows are what the next change is walked from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgtrickle.model.catalog import Column
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.codec import HASHED, texts
from pgtrickle.pipeline.delta_layout import ROWS, DeltaLayout
from pgtrickle.pipeline.differentiate import general, recursion
from pgtrickle.pipeline.differentiate.linear import ChangedSource, W
from pgtrickle.pipeline.differentiate.recursion import RecursionPlan
from pgtrickle.pipeline.plan.nodes import Block, parts, plain
from pgtrickle.pipeline.render.delta_rows import now


@dataclass(frozen=True, slots=True)
class RecursionTemplate:
    """WITH RECURSIVE whose rows are stored with all their columns: its change comes from them and the changes."""

    plan: Block
    walk: RecursionPlan
    columns: tuple[Column, ...]
    relids: frozenset[int]
    stored: str
    slots: DeltaLayout = ROWS

    @property
    def row(self) -> str:
        return texts("q", self.columns)

    @property
    def lookups(self) -> tuple[str, ...]:
        """The stored columns by which steps find rows to go on from."""
        names = self.walk.node.names
        return tuple(self.columns[self.walk.columns[names.index(k)]].name for k in self.walk.keys)

    def load_statement(self) -> str:
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        return f"SELECT {self.row} FROM ({now(self.plan)}) AS q({names})"

    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str:
        into = general.statement(changed)
        names = [c.name for c in self.columns]
        terms = recursion.delta(into, self.walk, self.stored, names, general.delta)
        shown = ", ".join(quote_ident(n) for n in (*self.walk.node.shown, "__pgt_w"))
        (part,) = parts(self.plan)
        source = f"({' UNION ALL '.join(f'({sql})' for sql in terms)}) AS {part.alias}({shown})"
        listed = ", ".join([*(f"c{i}" for i in range(len(names))), W])
        columns = ", ".join([*(plain(c.text) for c in self.plan.columns), f"{part.alias}.{W}"])
        return f"{into.with_clause()}SELECT q.{W}, {self.row} FROM (SELECT {columns} FROM {source}) AS q({listed})"


def compile_walk(
    plan: Block, columns: Sequence[Column], relids: frozenset[int], stored: str
) -> RecursionTemplate | None:
    """None where the recursion is not one that can be walked, or goes by a column that no hash index can hold."""
    walk = recursion.walk_of(plan)
    if walk is None:
        return None
    compared = [columns[walk.columns[walk.node.names.index(k)]] for k in walk.keys]
    if any(c.typid not in HASHED for c in compared):
        return None
    return RecursionTemplate(plan, walk, tuple(columns), relids, stored)
