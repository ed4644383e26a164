"""The current state of a database: stream tables, refresh groups, dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pgtrickle.db import Connection, require_version, statement, translated
from pgtrickle.definitions.definition import FilePosition, Option
from pgtrickle.definitions.order import Name
from pgtrickle.errors import ConfigError, PgtrickleError


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A stream table as the catalog has it; `options` are those that are not the default."""

    pgt_id: int
    name: Name
    label: str
    query: str
    typed_query: str
    options: Mapping[str, Option]
    applied_from: str | None
    columns: Any
    mode: str
    reason: str | None
    is_cross_database: bool  # reads tables of other databases: `query` reads their mirrors
    is_renamed: bool = (
        False  # a source was renamed and the stream table has not followed yet: `query` has the old names
    )


@dataclass(frozen=True, slots=True)
class PendingTable:
    """A definition over other databases that waits for the control plane, or was refused by it."""

    label: str
    query: str
    options: Mapping[str, Option]
    refusal: str | None


@dataclass(frozen=True, slots=True)
class StoredGroup:
    name: str
    isolation: str
    members: tuple[str, ...]
    applied_from: str | None


def stream_tables(conn: Connection, pgt_id: int | None = None) -> dict[Name, StoredTable]:
    rows = conn.execute(statement("definitions_present"), [pgt_id]).fetchall()
    return {(row[1], row[2]): StoredTable(row[0], (row[1], row[2]), *row[3:]) for row in rows}


def pending_definitions(conn: Connection) -> dict[Name, PendingTable]:
    rows = conn.execute("SELECT * FROM pgtrickle._asked()").fetchall()
    return {(row[0], row[1]): PendingTable(*row[2:]) for row in rows}


def groups(conn: Connection) -> dict[str, StoredGroup]:
    rows = conn.execute(statement("definitions_groups")).fetchall()
    return {row[0]: StoredGroup(row[0], row[1], tuple(row[2]), row[3]) for row in rows}


def reads(conn: Connection) -> dict[Name, set[Name]]:
    """The stream tables that each stream table reads."""
    read_by_table: dict[Name, set[Name]] = {}
    for schema, name, source_schema, source_name in conn.execute(statement("definitions_reads")).fetchall():
        read_by_table.setdefault((schema, name), set()).add((source_schema, source_name))
    return read_by_table


def require_ready(conn: Connection) -> bool:
    """False if pgtrickle is not installed; raises an error if it cannot be used."""
    row = conn.execute(statement("definitions_ready")).fetchone()
    installed, usable = row or (False, False)
    if installed and not usable:
        raise ConfigError("permission denied for schema pgtrickle", hint="GRANT USAGE ON SCHEMA pgtrickle TO this role")
    if installed:
        require_version(conn)
    return bool(installed)


def normalised(conn: Connection, query: str) -> str:
    """The query as PostgreSQL parses it; an error leaves the transaction usable."""
    with translated(), conn.transaction():
        ((text,),) = conn.execute("SELECT pgtrickle._normalised(%s)", [query]).fetchall()
    assert isinstance(text, str)
    return text


def normalised_again(conn: Connection, table: StoredTable, *, typed: bool) -> str:
    """The stored query of a stream table, as typed or as PostgreSQL understood it, parsed again. Raises an error if
    parsing could run code of its author with the privileges of this session."""
    with translated(), conn.transaction():
        conn.execute("SELECT pgtrickle._require_author(%s, %s)", [table.pgt_id, typed])
    return normalised(conn, table.typed_query if typed else table.query)


@contextmanager
def errors_at(at: FilePosition) -> Iterator[None]:
    """Adds file and line to errors that leave this block."""
    try:
        with translated():
            yield
    except PgtrickleError as error:
        raise type(error)(f"{at}: {error.message}", hint=error.hint, sqlstate=error.sqlstate) from error.__cause__
