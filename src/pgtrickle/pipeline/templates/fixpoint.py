"""The statements of a least fixpoint: stream tables that read one another, evaluated step by step in working tables.

A step evaluates one definition over the current working tables. New rows are stored with the number of the step
(`came`); the next step of a definition that reads them takes only the rows since its own last step: the delta of a
monotone query for inserted rows is inserted rows, which the delta rules compute. If the evaluation starts with the
stored rows, the first step takes the windows of the sources; if it starts with empty tables, it evaluates the whole
definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

from pgtrickle.model.catalog import Column, Relation
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.codec import decoded, encoded, exact, texts
from pgtrickle.pipeline.differentiate.as_of import copies
from pgtrickle.pipeline.differentiate.linear import ChangedSource, FixpointSteps
from pgtrickle.pipeline.plan.nodes import Node, Scan, scans
from pgtrickle.pipeline.render.delta_rows import current_rows, delta_rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CycleMember:
    """A member of a cycle: where it is stored, its visible columns, and its plan over the working tables."""

    pgt_id: int
    relid: int
    stored: str  # quoted
    columns: tuple[Column, ...]
    numbers: tuple[int, ...]  # the attribute number of each column in the stored table
    plan: Node

    @property
    def new_rows(self) -> str:
        """The new rows of this evaluation: step, action and the columns by attribute number, as in a change buffer."""
        return f'"pg_temp"."__pgt_new_rows_{self.pgt_id}"'

    @property
    def reads(self) -> frozenset[int]:
        return frozenset(s.relation.relid for s in scans(self.plan))

    def prepare(self, *, from_empty: bool) -> list[str]:
        """Creates the working tables. `from_empty`: without the stored rows."""
        pairs = list(zip(self.columns, self.numbers, strict=True))
        listed = "".join(f", m.{quote_ident(c.name)} AS c{n}" for c, n in pairs)
        new_columns = ", ".join(f"w.c{n} AS {quote_ident(c.name)}" for c, n in pairs)
        rows = f"SELECT {new_columns} FROM {self.new_rows} AS w"
        if not from_empty:
            stored_columns = ", ".join(f"m.{quote_ident(c.name)}" for c in self.columns)
            rows = f"SELECT {stored_columns} FROM {self.stored} AS m UNION ALL {rows}"
        return [
            f"CREATE TEMP TABLE {quote_ident(_new_rows_name(self.pgt_id))} ON COMMIT DROP AS "
            f"SELECT 0 AS step, 'I'::\"char\" AS action{listed} FROM {self.stored} AS m WITH NO DATA",
            f"CREATE TEMP VIEW {quote_ident(_current_rows_name(self.pgt_id))} AS {rows}",
        ]

    def drop(self) -> list[str]:
        """Drops views first: they are not dropped at commit, and prevent dropping their tables."""
        return [f'DROP VIEW "pg_temp".{quote_ident(_current_rows_name(self.pgt_id))}', f"DROP TABLE {self.new_rows}"]

    def first_step(self, step: int) -> str:
        """The first step from empty tables."""
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        listed = ", ".join(f"q.c{i}" for i in range(len(self.columns)))
        return (
            f"INSERT INTO {self.new_rows} SELECT {step}, 'I', {listed} FROM ({current_rows(self.plan)}) AS q({names})"
        )

    def later_step(self, step: int, changed: Mapping[int, ChangedSource]) -> str:
        """All later steps. PostgreSQL raises an error for a negative row count: a monotone query deletes no row."""
        width = len(self.columns)
        row = texts("q", self.columns)
        listed = ", ".join(decoded("b.r::text[]", i, c.type, c.base) for i, c in enumerate(self.columns))
        signed = delta_rows(changed, self.plan, row, width)
        net = f"SELECT d.r, sum(d.w) AS n FROM ({signed}) AS d(w, r) GROUP BY d.r HAVING sum(d.w) <> 0"
        return f"INSERT INTO {self.new_rows} SELECT {step}, 'I', {listed} FROM ({net}) AS b, {copies('b.n')}"

    def steps_since(self, step: int, rows: int) -> ChangedSource:
        """The rows of this step or later, as a delta."""
        return ChangedSource(self.relid, FixpointSteps(self.new_rows, step), rows)

    def all_new_rows(self) -> str:
        """All rows of the working table, encoded."""
        row = encoded([exact(f"w.c{n}", c.base) for c, n in zip(self.columns, self.numbers, strict=True)])
        return f"SELECT {row} FROM {self.new_rows} AS w"


@dataclass(frozen=True, slots=True)
class FixpointStep:
    """One step of one member. Without a statement: its inputs have no new rows."""

    number: int
    member: CycleMember
    sql: str | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """The number of new rows of a step of a member."""

    relid: int
    step: int
    rows: int


@dataclass(frozen=True, slots=True)
class FixpointProgress:
    """The progress of an evaluation. `last`: the number of each member's last step."""

    members: tuple[CycleMember, ...]
    from_empty: bool
    step: int = 0
    last: Mapping[int, int] = field(default_factory=dict)
    arrivals: tuple[Arrival, ...] = ()

    def next_step(self, member: CycleMember, windows: Mapping[int, ChangedSource]) -> FixpointStep:
        """`windows`: changes of sources outside the cycle, for the first step."""
        number, since = self.step + 1, self.last.get(member.relid)
        if since is None and self.from_empty:
            return FixpointStep(number, member, member.first_step(number))
        changed = {r: c for r, c in windows.items() if r in member.reads} if since is None else {}
        for other in self.members:
            rows = sum(a.rows for a in self.arrivals if a.relid == other.relid and a.step >= (since or 0))
            if rows and other.relid in member.reads:
                changed[other.relid] = other.steps_since(since or 0, rows)
        return FixpointStep(number, member, member.later_step(number, changed) if changed else None)

    def after(self, step: FixpointStep, rows: int) -> FixpointProgress:
        arrivals = (Arrival(step.member.relid, step.number, rows),) if rows else ()
        last = {**self.last, step.member.relid: step.number}
        return replace(self, step=step.number, last=last, arrivals=self.arrivals + arrivals)

    @property
    def is_ended(self) -> bool:
        """Whether the last round, a step of each member, had no new rows."""
        return all(a.step <= self.step - len(self.members) for a in self.arrivals)

    @property
    def rows_after_first_round(self) -> int:
        return sum(a.rows for a in self.arrivals if a.step > len(self.members))


def define(
    pgt_id: int,
    relid: int,
    stored: str,
    columns: tuple[Column, ...],
    *,
    plan: Node,
    relations: Mapping[int, Relation],
    members: Mapping[int, int],
) -> CycleMember:
    """`relations`: the members as tables, by relid. `members`: relid to pgt_id."""
    numbers = {c.name: c.attnum for c in relations[relid].columns}
    working = {
        r: replace(relation, schema="pg_temp", name=_current_rows_name(members[r]), key=(), indexed=frozenset())
        for r, relation in relations.items()
    }
    return CycleMember(pgt_id, relid, stored, columns, tuple(numbers[c.name] for c in columns), _over(plan, working))


def _new_rows_name(pgt_id: int) -> str:
    return f"__pgt_new_rows_{pgt_id}"


def _current_rows_name(pgt_id: int) -> str:
    return f"__pgt_current_rows_{pgt_id}"


def _over(node: T, working: Mapping[int, Relation]) -> T:
    """The same plan over other relations. Plans consist of frozen dataclasses and tuples."""
    value: Any = node
    if isinstance(value, Scan):
        value = replace(value, relation=working.get(value.relation.relid, value.relation))
    elif isinstance(value, tuple):
        value = tuple(_over(v, working) for v in value)
    elif is_dataclass(value) and not isinstance(value, type):
        value = replace(value, **{f.name: _over(getattr(value, f.name), working) for f in fields(value)})
    return value  # type: ignore[no-any-return]
