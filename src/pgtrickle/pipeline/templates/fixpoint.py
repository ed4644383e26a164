"""The statements of a least fixpoint: stream tables that read one another, evaluated step by step in working tables.

A step evaluates one definition over what its tables are by then. What a step has found is noted with the step's number
(`came`); the next step of a definition that reads it takes only what came since its own last one: the change of a
monotone query when rows come is rows that come, and the delta rules say which. Where the stored rows are the beginning,
the first step takes the windows of the sources; where nothing is, it evaluates all of the definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
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
    def came(self) -> str:
        """What this evaluation has found: step, action and the columns by attribute number, as a buffer has them."""
        return f'"pg_temp"."__pgt_came_{self.pgt_id}"'

    @property
    def reads(self) -> frozenset[int]:
        return frozenset(s.relation.relid for s in scans(self.plan))

    def prepare(self, *, anew: bool) -> list[str]:
        """Makes the working tables. `anew`: the stored rows do not count."""
        pairs = list(zip(self.columns, self.numbers, strict=True))
        listed = "".join(f", m.{quote_ident(c.name)} AS c{n}" for c, n in pairs)
        found = ", ".join(f"w.c{n} AS {quote_ident(c.name)}" for c, n in pairs)
        rows = f"SELECT {found} FROM {self.came} AS w"
        if not anew:
            kept = ", ".join(f"m.{quote_ident(c.name)}" for c in self.columns)
            rows = f"SELECT {kept} FROM {self.stored} AS m UNION ALL {rows}"
        return [
            f"CREATE TEMP TABLE {quote_ident(_came_name(self.pgt_id))} ON COMMIT DROP AS "
            f"SELECT 0 AS step, 'I'::\"char\" AS action{listed} FROM {self.stored} AS m WITH NO DATA",
            f"CREATE TEMP VIEW {quote_ident(_now_name(self.pgt_id))} AS {rows}",
        ]

    def drop(self) -> list[str]:
        """A view is not dropped at commit by itself, and a table not while a view reads it."""
        return [f'DROP VIEW "pg_temp".{quote_ident(_now_name(self.pgt_id))}', f"DROP TABLE {self.came}"]

    def whole(self, step: int) -> str:
        """The first step from nothing."""
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        listed = ", ".join(f"q.c{i}" for i in range(len(self.columns)))
        return f"INSERT INTO {self.came} SELECT {step}, 'I', {listed} FROM ({current_rows(self.plan)}) AS q({names})"

    def further(self, step: int, changed: Mapping[int, ChangedSource]) -> str:
        """Every other step. Fewer than no copies of a row is an error of PostgreSQL's: nothing may go."""
        width = len(self.columns)
        row = texts("q", self.columns)
        listed = ", ".join(decoded("b.r::text[]", i, c.type, c.base) for i, c in enumerate(self.columns))
        signed = delta_rows(changed, self.plan, row, width)
        net = f"SELECT d.r, sum(d.w) AS n FROM ({signed}) AS d(w, r) GROUP BY d.r HAVING sum(d.w) <> 0"
        return f"INSERT INTO {self.came} SELECT {step}, 'I', {listed} FROM ({net}) AS b, {copies('b.n')}"

    def since(self, step: int, rows: int) -> ChangedSource:
        """What came at this step or later, as a change."""
        return ChangedSource(self.relid, FixpointSteps(self.came, step), rows)

    def found(self) -> str:
        """All rows of the working table in the form in which they travel."""
        row = encoded([exact(f"w.c{n}", c.base) for c, n in zip(self.columns, self.numbers, strict=True)])
        return f"SELECT {row} FROM {self.came} AS w"


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
        r: replace(relation, schema="pg_temp", name=_now_name(members[r]), key=(), indexed=frozenset())
        for r, relation in relations.items()
    }
    return CycleMember(pgt_id, relid, stored, columns, tuple(numbers[c.name] for c in columns), _over(plan, working))


def _came_name(pgt_id: int) -> str:
    return f"__pgt_came_{pgt_id}"


def _now_name(pgt_id: int) -> str:
    return f"__pgt_now_{pgt_id}"


def _over(node: T, working: Mapping[int, Relation]) -> T:
    """The same plan over other relations. Plans are nothing but frozen dataclasses and tuples."""
    value: Any = node
    if isinstance(value, Scan):
        value = replace(value, relation=working.get(value.relation.relid, value.relation))
    elif isinstance(value, tuple):
        value = tuple(_over(v, working) for v in value)
    elif is_dataclass(value) and not isinstance(value, type):
        value = replace(value, **{f.name: _over(getattr(value, f.name), working) for f in fields(value)})
    return value  # type: ignore[no-any-return]
