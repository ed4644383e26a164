"""What the parts of the parser share: names that a query may use, and the reader that they call for nested parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pgtrickle.model.catalog import Relation
from pgtrickle.pipeline.plan.nodes import Plan, Scan, Text
from pgtrickle.pipeline.text.tokens import Cursor

FindRelation = Callable[[str, str], Relation]


@dataclass(frozen=True, slots=True)
class Cte:
    """A WITH item: its text, its own column names, what it may name in turn."""

    body: str
    columns: tuple[str, ...] | None
    scope: Mapping[str, Cte]
    is_recursive: bool = False
    is_self: bool = False  # the name of a recursive query inside itself


Ctes = Mapping[str, Cte]


@dataclass(frozen=True, slots=True)
class Functions:
    """Names of functions that are not plain scalar ones, so that none is taken for one."""

    aggregates: frozenset[str]
    sets: frozenset[str] = frozenset()  # set-returning


class Reader(Protocol):
    """Reads the queries, relations and expressions that a SELECT contains."""

    @property
    def find(self) -> FindRelation: ...

    @property
    def functions(self) -> Functions: ...

    def number(self) -> int: ...

    def query(self, cursor: Cursor, ctes: Ctes, *, top: bool = False, open_: bool = False) -> Plan: ...

    def cte(self, name: str, cte: Cte, *, top: bool) -> Plan: ...

    def text(self, cursor: Cursor, ctes: Ctes, start: int, stop: int) -> Text: ...

    def scan(self, relation: Relation, renamed: tuple[str, ...] | None) -> Scan: ...
