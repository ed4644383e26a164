"""What exists: relations with their columns, and stream tables as the catalog describes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A live column of a relation or of a query's result."""

    attnum: int
    name: str
    type: str  # format_type(): usable in DDL and casts
    typid: int
    typmod: int
    not_null: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation that a query names. `query` is set for views only."""

    relid: int
    schema: str
    name: str
    kind: str  # pg_class.relkind
    columns: tuple[Column, ...]
    query: str | None = None
    has_children: bool = False

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)


@dataclass(frozen=True, slots=True)
class StreamTable:
    """A row of pgt_stream_tables, as far as refreshing needs it."""

    pgt_id: int
    relid: int
    schema: str
    name: str
    query: str
    columns: tuple[Column, ...]
    refresh_mode: str
    effective_mode: str | None
    mode_reason: str | None
    schedule: str
    status: str
    is_populated: bool
    frontier: dict[str, dict[str, str]] | None
    epoch: int
    needs_reinit: bool
    reinit_reason: str | None
    definition_version: int
    sources: tuple[int, ...]

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"
