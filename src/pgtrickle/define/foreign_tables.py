"""Foreign and declared tables whose origin is a database of the fleet: their readers use mirrors instead.

They are moved back if the origin is not managed any more, or is another one. Until then they are refreshed in FULL.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.discover import server_label
from pgtrickle.db.probe import make_probe
from pgtrickle.db.proof import is_user
from pgtrickle.db.statements import statement
from pgtrickle.define.cross_database import OriginTable, ensure_mirror, find_table, reads_replicas, require_columns
from pgtrickle.define.renames import typed_text
from pgtrickle.errors import DefinitionError, PgtrickleError, TransientError
from pgtrickle.model.reasons import Reason, ReasonCode, named
from pgtrickle.model.texts import same_text
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.text.references import references_to
from pgtrickle.telemetry import DEFINITION_KEPT, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A row of shared_candidates."""

    pgt_id: int
    creator: str
    relid: int
    schema: str | None  # None: it was dropped
    name: str | None
    database: str | None
    host: str | None
    port: str | None
    origin: tuple[str, str, str] | None
    declared_by: str | None
    has_mapping: bool
    remote_user: str | None
    password: str | None = field(repr=False)
    is_vouched: bool
    columns: tuple[dict[str, Any], ...]
    served_key: str | None
    served_relid: int | None
    served_columns: tuple[dict[str, Any], ...]
    mirror: int | None

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.name}"

    def is_served_by(self, table: OriginTable | None) -> bool:
        """Whether its mirror belongs to this table and has the local columns."""
        if table is None or (table.place.key, table.relid) != (self.served_key, self.served_relid):
            return False
        here = {c["name"]: c for c in self.columns}
        there = {c["name"]: c for c in table.columns}
        for column in self.served_columns:
            local = here.get(column["name"])
            its = there.get(local["origin_name"]) if local is not None else None
            if local is None or its is None or (its["attnum"], local["type"]) != (column["attnum"], column["type"]):
                return False
            if not same_text(its["type"], local["type"]):
                return False
        return True


def serve_shared(home: Connection, dsn: str, origins: OriginSessions) -> int:
    """Moves stream tables to mirrors and back; returns how many. An origin that does not answer changes nothing."""
    with translated():
        rows = home.execute(statement("shared_candidates")).fetchall()
    moved = 0
    candidates = [_candidate(row) for row in rows]
    for pgt_id, group in groupby(candidates, lambda c: c.pgt_id):
        try:
            with translated(), home.transaction():
                moved += _serve(home, dsn, origins, pgt_id, list(group))
        except TransientError:
            if home.closed or home.broken:
                raise
        except PgtrickleError as error:
            log.warning(
                "A stream table was not moved to a mirror",
                extra=event(DEFINITION_KEPT, pgt_id=pgt_id, detail=error.one_line()),
            )
    return moved


def _candidate(row: Sequence[Any]) -> _Candidate:
    values = list(row)
    values[8] = tuple(row[8]) if row[8] is not None and all(row[8]) else None
    values[14] = tuple(row[14])
    values[17] = tuple(row[17] or ())
    return _Candidate(*values)


def _serve(home: Connection, dsn: str, origins: OriginSessions, pgt_id: int, candidates: Sequence[_Candidate]) -> int:
    tables: dict[int, OriginTable] = {}
    reason: Reason | None = None
    for candidate in candidates:
        try:
            tables[candidate.relid] = _origin(dsn, origins, candidate)
        except TransientError:
            raise
        except PgtrickleError as error:
            reason = reason or Reason.of(ReasonCode.READ_AS_IS, table=candidate.label, error=error.message)
    unserved = [c for c in candidates if c.mirror is None]
    moved_away = [c for c in candidates if c.mirror is not None and not c.is_served_by(tables.get(c.relid))]
    if moved_away:
        return _alter(home, pgt_id, moved_away, {})
    if reason is not None and len(unserved) == len(candidates):
        home.execute(statement("mode_reason"), {"id": pgt_id, **named(reason)})
        return 0
    if unserved:
        return _alter(home, pgt_id, unserved, tables)
    _follow_here(home, pgt_id, candidates)
    return 0


def _follow_here(home: Connection, pgt_id: int, candidates: Sequence[_Candidate]) -> None:
    """Updates the names of tables that mirrors replace: only the query as typed contains them."""
    row = home.execute(statement("texts_held"), {"id": pgt_id}).fetchone()
    if row is None or all(c.name is None or c.name in row[1] for c in candidates):
        return
    home.execute(statement("typed_text_stored"), {"id": pgt_id, "typed": typed_text(home, pgt_id, row[0])})


def _origin(dsn: str, origins: OriginSessions, candidate: _Candidate) -> OriginTable:
    if candidate.schema is None:
        raise DefinitionError("the table does not exist any more")
    if candidate.origin is None:
        raise DefinitionError("its options do not name the database and the table of its origin")
    database, schema, name = candidate.origin
    role = candidate.creator
    if candidate.declared_by is not None:
        database = _declared(dsn, origins, database)
    elif not candidate.has_mapping:
        raise DefinitionError(f"role {role} has no user mapping for its server")
    else:
        role = candidate.remote_user or role
        host, port = candidate.host, candidate.port or "5432"
        server = _server(dsn, origins, host, port)
        if server is None:
            raise DefinitionError(f"its server {host or 'localhost'}:{port} does not belong to this fleet")
        database = f"{database}@{server}"
    with origins.visit(dsn, database) as (conn, place):
        if role != candidate.creator and not (candidate.is_vouched or is_user(conn, role, candidate.password)):
            raise DefinitionError(f"the user mapping of {candidate.creator} has no valid password for role {role}")
        table = find_table(conn, place, schema, name, role)
        if candidate.declared_by not in (None, role):
            # Otherwise the declaring role could choose the source of stream tables of roles with more privileges.
            table = table.readable_by(find_table(conn, place, schema, name, str(candidate.declared_by)))
    return table


def _declared(dsn: str, origins: OriginSessions, database: str) -> str:
    """database@host:port of a subscription, with the host as the fleet names it; otherwise unchanged."""
    name, _, server = database.rpartition("@")
    host, _, port = server.rpartition(":")
    served = _server(dsn, origins, host, port) if name and host else None
    return database if served is None else f"{name}@{served}"


def _server(dsn: str, origins: OriginSessions, host: str | None, port: str) -> str | None:
    """The server of the fleet. For a server, `localhost` is the server itself."""
    own = server_label(dsn)
    if host is None or host.startswith("/") or host in ("localhost", "127.0.0.1", "::1"):
        return own if own.rpartition(":")[2] == port else None
    meant = _addresses(host)
    for label in dict.fromkeys((own, *map(server_label, origins.servers))):
        there, _, its_port = label.rpartition(":")
        if its_port == port and (there == host or meant & _addresses(there)):
            return label
    return None


def _addresses(host: str) -> set[str]:
    if host.startswith("/"):
        return set()
    try:
        return {str(ipaddress.ip_address(info[4][0])) for info in socket.getaddrinfo(host, None)}
    except (OSError, ValueError):
        return set()


def _alter(home: Connection, pgt_id: int, candidates: Sequence[_Candidate], tables: dict[int, OriginTable]) -> int:
    """Replaces these relations in the query by their mirrors, or their mirrors by these relations.

    Not while a rename is pending: until then the text has another meaning.
    """
    if home.execute("SELECT pgtrickle._reads_otherwise(%s)", (pgt_id,)).fetchone() == (True,):
        return 0
    row = home.execute(statement("texts_held"), {"id": pgt_id}).fetchone()
    if row is None:
        return 0
    text, original, creator = row
    mirrors: list[int] = [r[0] for r in home.execute(statement("mirrors_read"), {"id": pgt_id}).fetchall()]
    used = {r[0]: frozenset(r[1]) for r in home.execute(statement("columns_used"), {"id": pgt_id}).fetchall()}
    keywords, stored = catalog.keywords(home), not reads_replicas(home, pgt_id, None)
    for candidate in candidates:
        if candidate.schema is None or candidate.name is None:
            raise DefinitionError("a mirrored table that it reads does not exist any more", hint="define it again")
        here, there = (candidate.schema, candidate.name), ("pgtrickle_changes", f"mirror_{candidate.mirror}")
        if candidate.mirror is None:
            mirrors.append(ensure_mirror(home, *_as_local(candidate, tables[candidate.relid], used), stored=stored))
            there = ("pgtrickle_changes", f"mirror_{mirrors[-1]}")
        old, new = (here, there) if candidate.mirror is None else (there, here)
        places = references_to(text, old, keywords)
        if not places:
            raise DefinitionError(f"{candidate.label} is read through a view")
        for place in places:
            text = place.replaced(text, *new)
    if make_probe(home, text) is not None:
        raise DefinitionError("the query names another database")
    require_columns(home)
    relids = [r[0] for r in home.execute(statement("mirror_relids"), {"ids": mirrors}).fetchall()]
    home.execute(
        statement("definition_register"),
        {
            "id": pgt_id,
            "role": creator,
            "mirrors": relids,
            "schema": None,
            "name": None,
            "query": original,
            "options": json.dumps({}),
        },
    )
    home.execute("DROP VIEW pg_temp.__pgt_probe")
    return 1


def _as_local(
    candidate: _Candidate, table: OriginTable, used: dict[int, frozenset[int]]
) -> tuple[OriginTable, set[str], int]:
    """The table at its origin, with the local names and types of its columns."""
    there = {c["name"]: c for c in table.columns}
    columns = []
    for column in candidate.columns:
        its = there.get(column["origin_name"])
        if its is None:
            raise DefinitionError(f"{table.full_name} has no column {column['origin_name']}")
        if not same_text(its["type"], column["type"]):
            raise DefinitionError(
                f"column {column['name']} is of type {column['type']} here and {its['type']} at its origin"
            )
        local = {"name": column["name"], "type": column["type"], "collation": column["collation"]}
        columns.append({**its, **local, "origin_name": column["origin_name"]})
    numbers = used.get(candidate.relid, frozenset())
    names = {c["name"] for c in candidate.columns if c["attnum"] in numbers}
    known = {c["attnum"] for c in columns}
    key = table.key if known.issuperset(table.key) else ()
    moved = OriginTable(table.place, table.schema, table.name, table.relid, tuple(columns), key, table.indexes)
    return moved, names, candidate.relid
