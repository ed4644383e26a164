"""What exists: relations with their columns, and stream tables as the catalog describes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pgtrickle.model.reasons import Reason

REGION = "__pgt_region"  # the hidden column of tables that are replaced region by region


class ObjectId(int):
    """The number of a relation or stream table in a template that is being stored: another database has another one."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A live column of a relation or of a query's result."""

    attnum: int
    name: str
    type: str  # format_type(): usable in DDL and casts
    typid: int
    typmod: int
    not_null: bool = False
    basis: int = 0  # the base type of a domain; 0: not a domain
    virtual: tuple[str, ...] | None = None  # of a virtual generated column: its expression, and the columns in it

    @property
    def base(self) -> int:
        return self.basis or self.typid


REGION_COLUMN = Column(0, REGION, 'text COLLATE "C"', 25, -1)


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
    key: tuple[int, ...] = ()  # columns of a unique index that are all NOT NULL
    indexed: frozenset[int] = frozenset()  # columns that an index leads with
    is_barrier: bool = False  # a view WITH (security_barrier): conditions of queries must not see rows that it hides

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)


@dataclass(frozen=True, slots=True)
class Source:
    """A relation that a stream table reads. `capturable`: its changes can be captured by triggers."""

    relid: int
    type: str  # TABLE, STREAM_TABLE, VIEW, MATVIEW, FOREIGN_TABLE, REMOTE
    columns: frozenset[int]
    virtual: frozenset[int] = frozenset()  # of the columns, those that are computed from others when they are read

    @property
    def captured_columns(self) -> frozenset[int]:
        return self.columns - self.virtual

    @property
    def capturable(self) -> bool:
        return self.type in ("TABLE", "STREAM_TABLE")


@dataclass(frozen=True, slots=True)
class Mirror:
    """The properties of a mirror: a stream table that copies a table of another database, where its query runs."""

    key: str  # of the origin: system identifier/database oid
    server: str  # host:port; empty: the server of the stream table
    database: str
    schema: str
    table: str
    relid: int
    columns: tuple[int, ...]  # attribute numbers there, in the order of the mirror's
    fingerprint: str | None
    is_stored: bool = True  # False: it has no rows; its only reader is evaluated on Spark, from the table's replica

    @property
    def name(self) -> str:
        """For display."""
        return f"{self.database}.{self.schema}.{self.table}" + (f" on {self.server}" if self.server else "")


@dataclass(frozen=True, slots=True)
class RemoteSource:
    """A table of another database that a stream table reads from its replica, through a mirror without rows."""

    relid: int  # of the mirror
    mirror_id: int
    mirror: Mirror

    @property
    def key(self) -> str:
        """Of its origin."""
        return self.mirror.key

    def at_origin(self, attnums: Collection[int]) -> frozenset[int]:
        """Attribute numbers of the mirror's columns, at the origin."""
        return frozenset(self.mirror.columns[attnum - 1] for attnum in attnums)


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
    effective_mode: str
    mode_reason: Reason | None
    schedule: str
    status: str
    is_populated: bool
    frontier: dict[str, dict[str, str]] | None
    epoch: int
    needs_reinit: bool
    reinit_reason: Reason | None
    definition_version: int
    plan: dict[str, Any] | None
    refresh_requested_at: datetime | None
    refresh_done_at: datetime | None
    consecutive_errors: int
    sources: tuple[Source, ...]
    fingerprints: dict[int, str | None]
    last_full_ms: float | None = None
    is_in_place: bool = True  # the storage table exists under its name in the catalog
    functions: str | None = None  # versions of the user-defined functions that the query calls
    created_at: datetime | None = None
    mirror: Mirror | None = None
    origins: dict[str, dict[str, str]] | None = None  # cuts of other databases in the frontiers of its sources
    keeps_no_session: bool = False  # pooler_compatibility_mode
    is_renamed: bool = False  # a relation that it reads, or its column, has another name than in the query
    author: str = ""
    run_as: str = "service"  # or "author": whose privileges evaluate the query
    session_settings: Mapping[str, str] = field(default_factory=dict)  # of the author's session, when it was defined
    operators: tuple[int, ...] = ()  # as PostgreSQL resolved them in the author's session
    lost_privilege: str | None = None  # as text; None: no privilege is missing
    code: str | None = None  # versions of the user-defined code, casts and checks that an evaluation can call
    engine: str | None = None  # auto, spark or postgres; None: the setting decides
    max_delta_fraction: float | None = None  # None: differential_max_change_ratio applies
    max_differential_joins: int | None = None
    keys: str | None = None  # NOT NULL columns and modifiers of types, of the tables that it reads
    partition_column: str | None = None  # of a partitioned stream table
    partition_collation: str | None = None  # of this column, quoted
    remotes: tuple[RemoteSource, ...] = ()
    names_replaceable: bool = False  # another role can put something else in the place of what the query names

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def compiled_from(self) -> tuple[object, ...]:
        """Everything that its compiled form depends on, except sources: their fingerprints detect changes."""
        identity = (self.definition_version, self.refresh_mode, self.relid, self.run_as, self.author, self.code)
        return (*identity, self.max_differential_joins, self.keys)

    @property
    def runs_as_author(self) -> bool:
        return self.run_as == "author"

    @property
    def captured(self) -> tuple[Source, ...]:
        return tuple(s for s in self.sources if s.capturable)

    @property
    def watched(self) -> tuple[Source, ...]:
        """Sources with a fingerprint: captured tables, and views, which may be redefined."""
        return tuple(s for s in self.sources if s.capturable or s.type == "VIEW")

    @property
    def refresh_requested(self) -> bool:
        if self.refresh_requested_at is None:
            return False
        return self.refresh_done_at is None or self.refresh_done_at < self.refresh_requested_at


def as_at_origin(table: StreamTable) -> StreamTable:
    """A mirror as its origin sees it: a query over an ordinary table."""
    mirror = table.mirror
    assert mirror is not None
    source = Source(mirror.relid, "TABLE", frozenset(mirror.columns))
    return replace(table, sources=(source,), fingerprints={mirror.relid: mirror.fingerprint})
