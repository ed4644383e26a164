"""Who writes queries: a role, and one of six ways by which its sessions get their settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import ROLE, ROLE_PASSWORD, reset_role

# The service role itself; one whose tables and code are not its own; one whom it may act as.
ROLES = (ROLE, "fz_author", "fz_member")
SESSION, LOCAL, OPTIONS = "SET", "SET LOCAL", "options"
OF_ROLE, OF_DATABASE, OF_ROLE_IN_DATABASE = "ALTER ROLE", "ALTER DATABASE", "ALTER ROLE IN DATABASE"
WAYS = (SESSION, LOCAL, OPTIONS, OF_ROLE, OF_DATABASE, OF_ROLE_IN_DATABASE)
ALL_SCHEMAS = ('"Ext Schema"', "public", "trees", "vec", '"App One"', "other", '"Own Types"', "ops")

SETTINGS: dict[str, tuple[str, ...]] = {
    "TimeZone": ("UTC", "Asia/Kolkata", "America/New_York", "Europe/Berlin"),
    "DateStyle": ("ISO, MDY", "ISO, DMY", "German", "SQL, DMY", "Postgres, MDY"),
    "IntervalStyle": ("postgres", "iso_8601", "sql_standard", "postgres_verbose"),
    "extra_float_digits": ("1", "0", "-3"),
    "bytea_output": ("hex", "escape"),
    "lc_monetary": ("C", "C.UTF-8"),
    "default_text_search_config": ("pg_catalog.simple", "pg_catalog.english"),
}
# Settings that decide how values are written.
FORMS = frozenset({"DateStyle", "IntervalStyle", "extra_float_digits", "bytea_output"})


@dataclass(frozen=True, slots=True)
class Author:
    role: str
    way: str
    path: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]

    def assignments(self) -> list[tuple[str, str]]:
        """What follows SET, name and value."""
        values = [(name, "'" + value + "'") for name, value in self.settings]
        return [("search_path", ", ".join(self.path) or "''"), *values]


def authors(random: Random, count: int = 3) -> tuple[Author, ...]:
    """With a role and a way of their own each."""
    roles = random.sample(ROLES, count)
    ways = random.sample(WAYS, count)
    return tuple(Author(role, way, path(random), _settings(random)) for role, way in zip(roles, ways, strict=True))


def path(random: Random) -> tuple[str, ...]:
    wanted = [s for s in ALL_SCHEMAS if s != "ops" and random.random() < 0.65]
    random.shuffle(wanted)
    way = random.random()
    if way < 0.12:
        return ("ops", "pg_catalog", *wanted)
    if way < 0.25:
        return ('"$user"', *wanted, "not_there")
    if way < 0.4:
        return (*wanted, "pg_catalog")
    return tuple(wanted)


def _settings(random: Random) -> tuple[tuple[str, str], ...]:
    """Half of the authors have the usual forms of text: others keep many queries from being differential."""
    usual = random.random() < 0.5
    values = {name: random.choice(of) for name, of in SETTINGS.items()}
    for name, of in SETTINGS.items():
        if name in FORMS and (usual or random.random() < 0.5):
            values[name] = random.choice(of[:2]) if name == "DateStyle" else of[0]
    return tuple(values.items())


@contextmanager
def settled(server: EmbeddedPostgres, database: str, of: Sequence[Author]) -> Iterator[None]:
    """What is set outside of sessions, for as long as it lasts: roles are the server's, and others use them."""
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        for author in of:
            if author.way not in (OF_ROLE, OF_DATABASE, OF_ROLE_IN_DATABASE):
                continue
            whose = {
                OF_ROLE: sql.SQL("ROLE {}").format(sql.Identifier(author.role)),
                OF_DATABASE: sql.SQL("DATABASE {}").format(sql.Identifier(database)),
                OF_ROLE_IN_DATABASE: sql.SQL("ROLE {} IN DATABASE {}").format(
                    sql.Identifier(author.role), sql.Identifier(database)
                ),
            }[author.way]
            for name, value in author.assignments():
                conn.execute(sql.SQL("ALTER {} SET {} = {}").format(whose, sql.SQL(name), sql.SQL(value)))
        try:
            yield
        finally:
            for role in ROLES:
                reset_role(conn, role)


class Session:
    """One of an author's sessions."""

    def __init__(self, server: EmbeddedPostgres, database: str, author: Author) -> None:
        self.author = author
        dsn = server.dsn(database, user=author.role, password=ROLE_PASSWORD)
        if author.way == OPTIONS:
            given = [("search_path", ",".join(author.path)), *author.settings]
            options = " ".join(f"-c {name}={_escaped(value)}" for name, value in given)
            dsn = make_conninfo(dsn, options=options)
        self.conn: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)
        if author.way == SESSION:
            for name, value in author.assignments():
                self.conn.execute(f"SET {name} = {value}".encode())

    def sql(self, text: str, *params: Any, timeout_ms: int = 0) -> list[tuple[Any, ...]]:
        cursor = self.run(text, *params, timeout_ms=timeout_ms)
        return cursor.fetchall() if cursor.description is not None else []

    def run(self, text: str, *params: Any, timeout_ms: int = 0) -> psycopg.Cursor[Any]:
        with self.conn.transaction():
            if timeout_ms:
                self.conn.execute(f"SET LOCAL statement_timeout = {timeout_ms}".encode())
            if self.author.way == LOCAL:
                for name, value in self.author.assignments():
                    self.conn.execute(f"SET LOCAL {name} = {value}".encode())
            return self.conn.execute(text.encode(), params or None)

    def close(self) -> None:
        self.conn.close()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
