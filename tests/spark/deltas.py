"""A query's delta in both engines: what PostgreSQL's answers before and after differ by, and the compiled delta."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pgtrickle.pipeline.expressions import PgType
from pgtrickle.pipeline.relational import CompiledQuery, ComputedColumn
from tests.spark.conformance import bits
from tests.spark.relational import Both

WEIGHT = "__pgt_w"
Source = tuple[str, str]
Rows = Counter[tuple[Any, ...]]


@dataclass
class Wanted:
    """A query with PostgreSQL's answer before the changes."""

    query: str
    compiled: CompiledQuery
    before: Rows


@dataclass
class Deltas:
    """Compiled queries and the states of their inputs on both sides of some changes."""

    both: Both
    _frames: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    _old: dict[Source, Rows] = field(default_factory=dict)
    _computed: dict[Source, tuple[ComputedColumn, ...]] = field(default_factory=dict)
    _fields: dict[Source, list[tuple[str, str]]] = field(default_factory=dict)
    changed: frozenset[Source] = frozenset()

    def before(self, query: str) -> Wanted:
        compiled = self.both.compile(query)
        for source in compiled.inputs:
            asked = (*self._computed.get(source, ()), *compiled.computed.get(source, ()))
            self._computed[source] = tuple(dict.fromkeys(asked))
        return Wanted(query, compiled, self.both.wanted(query, [c.type for c in compiled.columns]))

    def hold(self) -> None:
        """Keeps the inputs as they are now as the old state."""
        for source, computed in self._computed.items():
            rows, self._fields[source] = self.both.rows(*source, computed)
            self._old[source] = Counter(_hashable(row) for row in rows)

    def move(self) -> None:
        """Takes the inputs as they are now as the new state."""
        self._frames.clear()
        changed = set()
        for source, computed in self._computed.items():
            rows, fields = self.both.rows(*source, computed)
            old, new = self._old[source], Counter(_hashable(row) for row in rows)
            net = [(*row, n) for row, n in (new - old).items()] + [(*row, -n) for row, n in (old - new).items()]
            if net:
                changed.add(source)
            self._frames[*source, "old"] = self.both.made(list(old.elements()), fields)
            self._frames[*source, "new"] = self.both.made(rows, fields)
            self._frames[*source, "changes"] = self.both.made(net, [*fields, (WEIGHT, "bigint")])
        self.changed = frozenset(changed)

    def given(self, compiled: CompiledQuery) -> Rows:
        """The rows of the delta with their weights."""
        delta = compiled.delta(self.changed)
        if delta is None:
            return Counter()
        rows = delta.build(self.both.session, lambda schema, name, state: self._frames[schema, name, state]).collect()
        found: Rows = Counter()
        for *row, weight in rows:
            assert tuple(row) not in found
            assert weight != 0
            found[tuple(bits(v) for v in row)] += weight
        return found

    def difference(self, wanted: Wanted) -> str | None:
        """How the delta differs from PostgreSQL's answers; None if it does not."""
        types = [c.type for c in wanted.compiled.columns]
        after = self.both.wanted(wanted.query, types)
        want = _shown(after, types)
        want.subtract(_shown(wanted.before, types))
        got = _shown(self.given(wanted.compiled), types)
        want, got = ({row: n for row, n in rows.items() if n} for rows in (want, got))  # type: ignore[assignment]
        return None if want == got else f"wanted {want}\ngot {got}"


def _hashable(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(row)


def _shown(rows: Rows, types: Sequence[PgType]) -> Rows:
    """Of equal numerics with different digits either may be shown for a group: here without zeros at their end."""
    made: Rows = Counter()
    for row, n in rows.items():
        made[tuple(_trimmed(v, t) for v, t in zip(row, types, strict=True))] += n
    return made


def _trimmed(value: Any, type_: PgType) -> Any:
    if type_.name != "numeric" or value is None or "." not in str(value):
        return value
    return str(value).rstrip("0").rstrip(".")
