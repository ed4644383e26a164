"""Loads a fixture of an earlier catalog, as tests/migration/make_fixture.py has written it, into a server of its own.

A frontier belongs to one server: on another one pgtrickle takes the database for one that was restored from a backup,
and computes all stream tables anew, which would hide changes that an upgrade has lost. So the loader makes it a
database of this server: keys of databases and roles are replaced, tables get the oids that they had, frontiers become
the snapshot after loading, and fingerprints of sources are taken anew, by the statement of the version that wrote the
fixture. What a test writes afterwards goes through the triggers of that version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database
from tests.migration.make_fixture import MAIN, ORIGIN, STREAM_OIDS, advance_oids, create_foreign_server

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = tuple(sorted({f.name.split("_")[0] for f in FIXTURES.glob("v*_main.sql")}))
_OID = re.compile(r"^-- oid (\d+) (.+)$", re.MULTILINE)
_SECTION = re.compile(r"^-- == (\w+)\n", re.MULTILINE)
_HEAD = re.compile(r"^--\n-- ([^\n]*)\n--\n", re.MULTILINE)
_TABLE = re.compile(r"Name: (.+); Type: (?:FOREIGN )?TABLE; Schema: (.+); Owner:")
_TOKEN = re.compile(r"@(instance|creator)(?:\((\w+)\))?@")
_OID_OF = (
    "SELECT c.oid::int8 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE n.nspname || '.' || c.relname = %s"
)
_KEYS = (
    "SELECT s.system_identifier || '/' || d.oid, s.system_identifier || '/' || current_user::regrole::oid "
    "FROM pg_control_system() AS s, pg_database AS d WHERE d.datname = current_database()"
)


@dataclass(frozen=True)
class Statement:
    """One of a dump: `table` is the table that it creates, if it creates one."""

    table: str | None
    text: str


@dataclass(frozen=True)
class Dump:
    """A file of a fixture."""

    oids: dict[str, int]
    sections: dict[str, list[Statement]]

    @classmethod
    def read(cls, path: Path, token: Callable[[re.Match[str]], str]) -> Dump:
        head, *rest = _SECTION.split(_TOKEN.sub(token, path.read_text()))
        sections = {}
        for name, text in zip(rest[::2], rest[1::2], strict=True):
            first, *parts = _HEAD.split(text)
            titled = zip(["", *parts[::2]], [first, *parts[1::2]], strict=True)
            sections[name] = [Statement(_created(title), body) for title, body in titled if _is_run(body)]
        return cls({name: int(oid) for oid, name in _OID.findall(head)}, sections)


def _created(title: str) -> str | None:
    found = _TABLE.match(title)
    return None if found is None else f"{found[2]}.{found[1]}"


def _is_run(body: str) -> bool:
    return bool(body.strip()) and re.match(r"\s*(CREATE|COMMENT ON) SCHEMA public", body) is None


def load(version: str, server: EmbeddedPostgres) -> tuple[Database, Database]:
    """The databases `main` and `origin`, which has the table that `main` mirrors. The server is a new one."""
    databases = {"main": create_database(server, MAIN), "origin": create_database(server, ORIGIN)}
    create_foreign_server(databases["main"])
    conns = {place: database.connect() for place, database in databases.items()}
    keys = {place: conn.execute(_KEYS).fetchall()[0] for place, conn in conns.items()}

    def token(match: re.Match[str]) -> str:
        return str(keys["main"][1] if match[1] == "creator" else keys[match[2]][0])

    dumps = {place: Dump.read(FIXTURES / f"{version}_{place}.sql", token) for place in databases}
    created = {
        oid: (place, s)
        for place, dump in dumps.items()
        for section in ("public", "ours")
        for s in dump.sections[section]
        if s.table is not None and (oid := dump.oids.get(s.table)) is not None
    }
    assert len(created) == sum(len(dump.oids) for dump in dumps.values())

    def create(first: int, last: int) -> None:
        for oid in sorted(o for o in created if first <= o < last):
            place, one = created[oid]
            if oid > 1 + max(_last_oid(conn) for conn in conns.values()):  # looking at the counter takes one
                advance_oids(server.dsn(), oid)
            conns[place].execute(one.text)
            assert conns[place].execute(_OID_OF, (one.table,)).fetchall() == [(oid,)]

    create(0, STREAM_OIDS)
    waiting: dict[str, list[Statement]] = {}
    for place, dump in dumps.items():
        waiting[place] = [s for s in dump.sections["public"] if s.table is None]
        for one in dump.sections["ours"]:
            if one.table not in dump.oids and not _try(conns[place], one):
                waiting[place].append(one)
    create(STREAM_OIDS, 1 << 32)
    for place, dump in dumps.items():
        for one in (*waiting[place], *dump.sections["data"], *dump.sections["post"]):
            conns[place].execute(one.text)
        conns[place].execute("RESET ALL")
    _settle(version, {place: (conns[place], str(keys[place][0])) for place in databases})
    return databases["main"], databases["origin"]


def _last_oid(conn: psycopg.Connection[Any]) -> int:
    """Of what a table consists of."""
    catalogs = ("pg_class", "pg_type", "pg_constraint", "pg_attrdef")
    found = [conn.execute(f"SELECT max(oid)::int8 FROM pg_catalog.{name}").fetchall()[0][0] for name in catalogs]
    return max(int(oid) for oid in found if oid is not None)


def _try(conn: psycopg.Connection[Any], one: Statement) -> bool:
    """False: it is about a table that is created later."""
    try:
        conn.execute(one.text)
    except psycopg.errors.UndefinedTable:
        return False
    return True


def _settle(version: str, places: Mapping[str, tuple[psycopg.Connection[Any], str]]) -> None:
    query = FIXTURES.joinpath(f"{version}_fingerprints.sql").read_text()
    cuts = {}
    found: dict[str, dict[int, str]] = {}
    for place, (conn, key) in places.items():
        relids = [r for (r,) in conn.execute("SELECT source_relid::int8 FROM pgtrickle.pgt_sources").fetchall()]
        relids += [r for (r,) in conn.execute("SELECT source_relid::int8 FROM pgtrickle.pgt_dependencies").fetchall()]
        found[place] = dict(conn.execute(query, {"relids": sorted(set(relids))}).fetchall())
        for table in ("pgt_sources", "pgt_dependencies"):
            conn.cursor().executemany(
                f"UPDATE pgtrickle.{table} SET fingerprint = %s WHERE source_relid = %s AND fingerprint IS NOT NULL",
                [(text, relid) for relid, text in found[place].items()],
            )
        ((cuts[key],),) = conn.execute("SELECT pg_current_snapshot()::text").fetchall()
    main, origin = places["main"][0], places["origin"][0]
    ((timeline,),) = origin.execute("SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)").fetchall()
    main.cursor().executemany(
        "UPDATE pgtrickle.pgt_mirrors SET fingerprint = %s WHERE origin_relid = %s",
        [(f"{timeline}/{text}", relid) for relid, text in found["origin"].items()],
    )
    origin.execute(
        "UPDATE pgtrickle.pgt_readers SET snapshot = %s::pg_snapshot, netted = NULL", (cuts[places["origin"][1]],)
    )
    for conn in (main, origin):
        conn.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET frontier = (SELECT jsonb_object_agg(f.key, jsonb_build_object("
            "'snapshot', %s::jsonb ->> f.key)) FROM jsonb_object_keys(frontier) AS f(key)) WHERE frontier IS NOT NULL",
            (json.dumps(cuts),),
        )
