"""Definitions that read other databases: tables are looked up there and mirrored here, PostgreSQL types the query.

Privileges of the defining role are checked by this database for local tables, and by the origin, for the role of the
same name, for others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.probe import make_probe
from pgtrickle.db.statements import statement
from pgtrickle.define.operators import explicit
from pgtrickle.errors import DefinitionError, InvariantError, PgtrickleError, SourceChangedError, TransientError
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.origin.sessions import OriginDatabase, OriginSessions
from pgtrickle.pipeline.text.references import reference_at, references_to
from pgtrickle.pipeline.text.tokens import without_constants
from pgtrickle.telemetry import DEFINITION_REFUSED, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OriginTable:
    """A table of another database, with the privileges of one role."""

    place: OriginDatabase
    schema: str
    name: str
    relid: int
    columns: tuple[dict[str, Any], ...]
    key: tuple[int, ...]
    indexes: tuple[dict[str, Any], ...]

    @property
    def full_name(self) -> str:
        return f"{self.place.database}.{self.schema}.{self.name}"

    def readable_by(self, other: OriginTable) -> OriginTable:
        """Restricts the readable columns to those that the other role may read, too."""
        theirs = {c["attnum"] for c in other.columns if c["may_read"]}
        columns = tuple({**c, "may_read": c["may_read"] and c["attnum"] in theirs} for c in self.columns)
        return replace(self, columns=columns)


@dataclass(slots=True)
class _Shell:
    """An empty table that replaces one of another database while PostgreSQL types the query."""

    table: OriginTable
    name: str

    @property
    def relation(self) -> str:
        return f"pg_temp.{self.name}"


@dataclass(slots=True)
class PendingDefinition:
    """A row of pgt_definitions: a requested definition and its role."""

    schema: str
    name: str
    pgt_id: int | None
    query: str
    options: dict[str, Any]
    search_path: str
    role: str
    asked_at: datetime | None = None  # None: the query is only planned
    shells: dict[tuple[str, ...], _Shell] = field(default_factory=dict)

    def reads_replicas(self, home: Connection) -> bool:
        """Whether Spark evaluates it, from the replicas of its tables, so that nothing is mirrored."""
        return reads_replicas(home, self.pgt_id, self.options.get("engine"))

    @property
    def request(self) -> dict[str, Any]:
        return {"schema": self.schema, "name": self.name, "asked_at": self.asked_at}


def reads_replicas(home: Connection, pgt_id: int | None, engine: str | None) -> bool:
    """Whether a stream table with this option reads tables of other databases from their replicas. None: as it is."""
    if engine is None and pgt_id is not None:
        row = home.execute(statement("engine_option"), {"id": pgt_id}).fetchone()
        engine = None if row is None else row[0]
    return engine == "spark"


def define_pending(home: Connection, dsn: str, origins: OriginSessions) -> int:
    """Processes all pending definitions; records why one is refused or retried. Returns how many were accepted."""
    accepted = 0
    for definition in pending(home):
        error: PgtrickleError | None = None
        try:
            with translated(), home.transaction():
                define(home, dsn, origins, definition)
                done = home.execute(statement("definition_done"), definition.request)
                if not done.rowcount:
                    raise TransientError("the definition was replaced or withdrawn meanwhile")
            accepted += 1
        except PgtrickleError as caught:
            if home.closed or home.broken:
                raise
            error = caught
        if error is not None:
            _refuse(home, definition, error)
    return accepted


def _refuse(home: Connection, definition: PendingDefinition, error: PgtrickleError) -> None:
    is_final = not isinstance(error, TransientError)
    with translated():
        home.execute(
            statement("definition_refused"),
            {**definition.request, "message": error.one_line(), "is_final": is_final},
        )
    log.warning(
        "A definition was refused" if is_final else "A definition is checked again later",
        extra=event(DEFINITION_REFUSED, table=f"{definition.schema}.{definition.name}", detail=error.one_line()),
    )


def pending(home: Connection) -> list[PendingDefinition]:
    with translated():
        return [PendingDefinition(*row) for row in home.execute(statement("definitions_pending")).fetchall()]


def define(home: Connection, dsn: str, origins: OriginSessions, definition: PendingDefinition) -> None:
    """In a transaction of `home`, with the privileges of the defining role."""
    find = _finder(dsn, origins, definition.role)
    keywords = catalog.keywords(home)

    def place(parts: tuple[str, ...]) -> tuple[str, str]:
        return _shell(home, definition, parts, find)

    if home.execute("SELECT current_user = %s", (definition.role,)).fetchone() != (True,):
        # First without its constants: parsing one may run code of the owner of its type, here with our privileges.
        _type(home, replace(definition, query=without_constants(definition.query)), keywords, place)
        row = home.execute(statement("constants_trusted"), {"probe": "pg_temp.__pgt_probe"}).fetchone()
        home.execute("DROP VIEW pg_temp.__pgt_probe")
        if row is not None and row[0] is not None:
            raise DefinitionError(str(row[0]), hint="convert it in the query, for example to text")
    _type(home, definition, keywords, place)
    require_columns(home)
    used = {r[0]: frozenset(r[1]) for r in home.execute(statement("probe_columns")).fetchall()}
    # The text as PostgreSQL resolved it over all columns: * and NATURAL refer to the tables, not to the mirrors.
    row = home.execute(statement("probe_text")).fetchone()
    assert row is not None
    text, operators = row
    if text is None:
        home.execute("SELECT pgtrickle._refuse_unusable('pg_temp.__pgt_probe'::pg_catalog.regclass)")
    home.execute("DROP VIEW pg_temp.__pgt_probe")
    # While the empty tables still exist: operators that the text does not name are those of the author.
    text = explicit(home, text, operators, definition.search_path).query
    mirrors, stored = [], not definition.reads_replicas(home)
    for shell in definition.shells.values():
        (relid,) = home.execute("SELECT %s::pg_catalog.regclass::oid::int8", (shell.relation,)).fetchone() or (0,)
        positions = used.get(relid, frozenset())
        names = {c["name"] for i, c in enumerate(shell.table.columns, start=1) if i in positions}
        mirrors.append(ensure_mirror(home, shell.table, names, stored=stored))
        for reference in references_to(text, (shell.name,), keywords):
            text = reference.replaced(text, "pgtrickle_changes", f"mirror_{mirrors[-1]}")
        home.execute(f"DROP TABLE {shell.relation}")
    if make_probe(home, text) is not None:
        raise InvariantError("the query still names another database")
    relids = [r[0] for r in home.execute(statement("mirror_relids"), {"ids": mirrors}).fetchall()]
    registered = home.execute(
        statement("definition_register"),
        {
            "id": definition.pgt_id,
            "role": definition.role,
            "mirrors": relids,
            "schema": definition.schema,
            "name": definition.name,
            "query": definition.query,
            "options": json.dumps(definition.options),
        },
    ).fetchone()
    if registered is None:
        raise DefinitionError(f"role {definition.role} does not exist any more")
    home.execute("DROP VIEW pg_temp.__pgt_probe")


def require_columns(home: Connection) -> None:
    """Refuses whole rows: a mirror has only the named columns, and a hidden one."""
    row = home.execute(statement("probe_whole_rows")).fetchone()
    if row is not None and row[0]:
        raise DefinitionError(
            "the query uses a whole row, or a system column, of a table of another database", hint="name its columns"
        )


def _type(
    home: Connection,
    definition: PendingDefinition,
    keywords: frozenset[str],
    place: Callable[[tuple[str, ...]], tuple[str, str]],
) -> None:
    """Creates the probe. PostgreSQL reports the position of each name of another database, one after the other."""
    text = definition.query
    while (position := make_probe(home, text, definition.search_path)) is not None:
        reference = reference_at(text, position, keywords)
        text = reference.replaced(text, *place(reference.parts))


def _finder(dsn: str, origins: OriginSessions, role: str) -> Callable[[tuple[str, ...]], OriginTable]:
    def find(parts: tuple[str, ...]) -> OriginTable:
        database, schema, name = parts
        with origins.visit(dsn, database) as (conn, place):
            return find_table(conn, place, schema, name, role)

    return find


def find_table(conn: Connection, place: OriginDatabase, schema: str, name: str, role: str) -> OriginTable:
    """Finds a table at its origin. Raises an error if its changes cannot be captured, or if the role may not read it.

    In the latter case the message reveals nothing else.
    """
    full_name = f"{place.database}.{schema}.{name}"
    with translated():
        row = conn.execute(statement("origin_table"), {"schema": schema, "name": name, "role": role}).fetchone()
    assert row is not None
    relid, _, denied, columns, key, indexes, obstacle = row
    if denied is not None:
        raise DefinitionError(
            f"{full_name}: {denied}", hint="privileges are checked at the origin, for the role with your name"
        )
    if relid is None:
        raise DefinitionError(f"{full_name} does not exist", hint="write database.schema.table")
    if obstacle is not None:
        raise DefinitionError(f"{full_name} {obstacle}, so its changes cannot be captured", hint="name a table")
    return OriginTable(place, schema, name, relid, tuple(columns), tuple(key or ()), tuple(indexes))


def _shell(
    home: Connection,
    definition: PendingDefinition,
    parts: tuple[str, ...],
    find: Callable[[tuple[str, ...]], OriginTable],
) -> tuple[str, str]:
    if parts not in definition.shells:
        table = find(parts)
        name = f"__pgt_shell_{len(definition.shells)}"
        columns = ", ".join(_column(c, c["name"]) for c in table.columns)
        try:
            with translated(), home.transaction():
                home.execute(f"CREATE TEMPORARY TABLE {name} ({columns})")
        except SourceChangedError as error:
            raise DefinitionError(
                f"{table.full_name} cannot be read here: {error.message}", hint="create the type or collation here, too"
            ) from error
        definition.shells[parts] = _Shell(table, name)
    return "pg_temp", definition.shells[parts].name


def _column(column: Mapping[str, Any], name: str) -> str:
    collation = f" COLLATE {column['collation']}" if column["collation"] else ""
    return f"{quote_ident(name)} {column['type']}{collation}"


def ensure_mirror(
    home: Connection, table: OriginTable, names: set[str], local: int | None = None, *, stored: bool = True
) -> int:
    """Returns a mirror with these columns and those of the table's key; creates it if none exists.

    `local`: the local relation that it replaces, which determines the names and types of its columns. `stored` false:
    a new one without rows, for one stream table.
    """
    keys = set(table.key)
    mirrored = [c for c in table.columns if c["name"] in names or c["attnum"] in keys] or list(table.columns[:1])
    for column in mirrored:
        if column["name"] in names and not column["may_read"]:
            raise DefinitionError(f"permission denied for column {column['name']} of {table.full_name}")
        if column["obstacle"]:
            raise DefinitionError(f"column {column['name']} of {table.full_name} {column['obstacle']}")
    attnums = sorted(c["attnum"] for c in mirrored)
    parameters = {
        "key": table.place.key,
        "relid": table.relid,
        "columns": attnums,
        "names": [c["name"] for c in mirrored],
    }
    row = home.execute(statement("mirror_find"), {**parameters, "local": local}).fetchone() if stored else None
    if row is not None:
        return int(row[0])
    by_number = {c["attnum"]: c["name"] for c in mirrored}
    indexes = [
        {"columns": [by_number[a] for a in index["columns"]], "is_unique": bool(index["is_unique"])}
        for index in table.indexes
        if stored and by_number.keys() >= set(index["columns"])
    ]
    origin = {
        "key": table.place.key,
        "server": table.place.server,
        "database": table.place.database,
        "schema": table.schema,
        "table": table.name,
        "relid": table.relid,
        "stored": stored,
    }
    columns = [{"origin_name": c["name"], **c, "not_null": c["attnum"] in keys} for c in mirrored]
    row = home.execute(
        "SELECT pgtrickle._make_mirror(%s::jsonb, %s::jsonb, %s::jsonb, %s::int8::oid)",
        (json.dumps(origin), json.dumps(columns), json.dumps(indexes), local),
    ).fetchone()
    assert row is not None
    return int(row[0])
