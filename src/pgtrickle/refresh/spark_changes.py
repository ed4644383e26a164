"""The delta that Spark evaluates for a stream table, and how PostgreSQL reads it from a staging table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgtrickle.model.texts import as_text
from pgtrickle.pipeline.expressions import PgType, from_staged, staged_type
from pgtrickle.pipeline.relational import CompiledDelta, CompiledGroups, CompiledQuery
from pgtrickle.pipeline.templates.load_query import EngineQuery
from pgtrickle.pipeline.templates.template import FoldTemplate, Template
from pgtrickle.pipeline.templates.topk import TopKTemplate

if TYPE_CHECKING:
    from pgtrickle.pipeline.engine.columnar import Frame, Session
    from pgtrickle.pipeline.relational.compiled import StatesOfInputs

Places = frozenset[tuple[str, str]]


def staged_columns(types: Sequence[PgType]) -> tuple[tuple[str, str], ...]:
    return tuple((f"s{i}", staged_type(type_)) for i, type_ in enumerate(types))


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows with weights. `relation(stage)`: weight n and text k; for rows below a LIMIT their columns and w."""

    template: Template = field(repr=False)
    asked: EngineQuery = field(repr=False)
    delta: CompiledDelta = field(repr=False)
    types: tuple[PgType, ...]

    @property
    def staged(self) -> tuple[tuple[str, str], ...]:
        return (*staged_columns(self.types), ("w", "int8"))

    def build(self, session: Session, inputs: StatesOfInputs) -> Frame:
        return self.delta.build(session, inputs)

    def relation(self, stage: str) -> str:
        pairs = zip(self.types, self.asked.columns, strict=True)
        listed = "".join(f'{from_staged(f"t.s{i}", type_)} AS "{name}", ' for i, (type_, name) in enumerate(pairs))
        rows = self.asked.weighted(f"(SELECT {listed}t.w FROM {stage} AS t)")
        if isinstance(self.template, TopKTemplate):
            return rows
        assert not isinstance(self.template, FoldTemplate)
        return f"(SELECT q.w AS n, {self.template.row} AS k FROM {rows} AS q)"


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """Groups: a delta of their state (`is_signed`), or their new state. `relation(stage)`: the columns of
    `Groups.delta_columns`."""

    template: FoldTemplate = field(repr=False)
    asked: EngineQuery = field(repr=False)
    groups: CompiledGroups = field(repr=False)

    @property
    def is_signed(self) -> bool:
        return self.groups.is_signed

    @property
    def staged(self) -> tuple[tuple[str, str], ...]:
        return staged_columns([c.type for c in self.groups.columns])

    def build(self, session: Session, inputs: StatesOfInputs) -> Frame:
        return self.groups.build(session, inputs)

    def relation(self, stage: str) -> str:
        parts: dict[int, dict[str, str]] = {}
        for i, column in enumerate(self.groups.columns):
            parts.setdefault(column.number, {})[column.side] = from_staged(f"t.s{i}", column.type)
        listed = ", ".join(f'{_value(parts[i], name)} AS "{name}"' for i, name in enumerate(self.asked.columns))
        content = self.asked.content(f"(SELECT {listed} FROM {stage} AS t)")
        state = [(m.name(s), m) for m in self.template.measures.measures for s, _ in m.state]
        values = ["x.n", "x.k"]
        for name, measure in state:
            values.append(f'{as_text(f"""x."{name}" """.strip(), measure.base)} AS "{name}"')
            if measure.kind in ("least", "greatest"):
                values.append(f'true AS "{name}_set"')
        select = f"SELECT {', '.join(values)} FROM {content} AS x"
        if self.is_signed:
            select += " WHERE " + " OR ".join(["x.n <> 0", *(f'x."{name}" <> 0' for name, _ in state)])
        return f"({select})"


def _value(sides: dict[str, str], name: str) -> str:
    if "" not in sides:
        return f"coalesce({sides['came']}, 0) - coalesce({sides['gone']}, 0)"
    return f"coalesce({sides['']}, 0)" if name == "n" else sides[""]


@dataclass(frozen=True, slots=True)
class SparkChanges:
    """The delta of `query`; `asked` describes its columns. A delta is compiled once for each set of changed tables."""

    template: Template = field(repr=False)
    query: CompiledQuery = field(repr=False)
    asked: EngineQuery = field(repr=False)
    _made: dict[Places, RowChanges | GroupChanges | None] = field(default_factory=dict, repr=False)

    def of(self, changed: Places) -> RowChanges | GroupChanges | None:
        """None: the result does not change. Raises SparkUnsupportedError."""
        if changed not in self._made:
            self._made[changed] = self._of(changed)
        return self._made[changed]

    def _of(self, changed: Places) -> RowChanges | GroupChanges | None:
        if isinstance(self.template, FoldTemplate):
            is_added = all(m.kind == "add" for m in self.template.measures.measures)
            groups = self.query.group_changes(changed, signed=is_added)
            return None if groups is None else GroupChanges(self.template, self.asked, groups)
        delta = self.query.delta(changed)
        types = tuple(c.type for c in self.query.columns)
        return None if delta is None else RowChanges(self.template, self.asked, delta, types)
