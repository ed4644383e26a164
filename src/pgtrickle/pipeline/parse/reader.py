"""Shared by the modules of the parser: the names in scope, and the reader that parses nested queries."""

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
    """A CTE: its text, its column names, and the CTEs that it may use."""

    body: str
    columns: tuple[str, ...] | None
    scope: Mapping[str, Cte]
    is_recursive: bool = False
    is_self: bool = False  # the name of a recursive query inside itself


Ctes = Mapping[str, Cte]


@dataclass(frozen=True, slots=True)
class Functions:
    """Names of functions that are not scalar functions."""

    aggregates: frozenset[str]
    sets: frozenset[str] = frozenset()  # set-returning


class Reader(Protocol):
    """Parses the queries, relations and expressions of a SELECT."""

    @property
    def find(self) -> FindRelation: ...

    @property
    def functions(self) -> Functions: ...

    def number(self) -> int: ...

    def query(
        self, cursor: Cursor, ctes: Ctes, *, top: bool = False, open_: bool = False, keeps_order: bool = False
    ) -> Plan: ...

    def cte(self, name: str, cte: Cte, *, top: bool, keeps_order: bool = False) -> Plan: ...

    def text(self, cursor: Cursor, ctes: Ctes, start: int, stop: int) -> Text: ...

    def scan(self, relation: Relation, renamed: tuple[str, ...] | None) -> Scan: ...

    def computed(self, relation: Relation) -> tuple[Plan, tuple[int, ...]] | None: ...
