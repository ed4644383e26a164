"""The roles of a server and the template of its databases; fresh databases from it, one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pgtrickle.db.install import install
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import ROLE, ROLE_PASSWORD, create_database, drop_database
from tests.fuzz.equality.authors import Author, Session, settled
from tests.fuzz.equality.case import QUERIES, TypesCase, TypesWave
from tests.fuzz.equality.lively import candidates, chosen
from tests.fuzz.wave import STATEMENT_MS
from tests.line import Line

TEMPLATE = "template_types"
TEAM, VIEWER = "fz_team", "fz_viewer"
_numbers = itertools.count(1)


class Kept(Line):
    """A line whose database has authors; `conn` is the owner's of the tables."""

    def __init__(self, server: EmbeddedPostgres, database: str, dsn: str, engine: SparkEngine) -> None:
        super().__init__(dsn, engine)
        self.server = server
        self.database = database
        self.owner: psycopg.Connection[Any] = psycopg.connect(server.dsn(database), autocommit=True)
        self._sessions: dict[tuple[str, bool], Session] = {}

    def of(self, author: Author, *, creates: bool = False) -> Session:
        """The one that creates is not the one that is asked for answers."""
        key = (author.role, creates)
        if key not in self._sessions:
            self._sessions[key] = Session(self.server, self.database, author)
        return self._sessions[key]

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self.owner.close()
        super().close()


class TypesServer:
    """`features`: what this server has beyond what all have."""

    def __init__(self, server: EmbeddedPostgres, engine: SparkEngine) -> None:
        self.server = server
        self.engine = engine
        self.features = self._prepare()

    def _prepare(self) -> frozenset[str]:
        with psycopg.connect(self.server.dsn(), autocommit=True) as conn:
            if conn.execute("SELECT FROM pg_roles WHERE rolname = %s", (TEAM,)).fetchone() is None:
                for role in (TEAM, "fz_author", "fz_member", VIEWER):
                    conn.execute(
                        sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                            sql.Identifier(role), sql.Literal(ROLE_PASSWORD)
                        )
                    )
                for role in (TEAM, VIEWER, "fz_member"):
                    conn.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(ROLE)))
            found = conn.execute("SELECT FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone()
        if found is None:
            database = create_database(self.server, TEMPLATE)
            with psycopg.connect(database.dsn) as connection:
                install(connection)
            with psycopg.connect(database.superuser_dsn, autocommit=True) as connection:
                connection.execute((Path(__file__).parent / "world.sql").read_text().encode())
        with psycopg.connect(self.server.dsn(TEMPLATE), autocommit=True) as connection:
            return frozenset(_features(connection))

    def wave(self, seed: int, count: int = QUERIES) -> TypesWave:
        """The seed's lively queries."""
        made = candidates(seed, self.features, count)
        case = made.types_case
        name = f"types_{next(_numbers)}"
        database = create_database(self.server, name, template=TEMPLATE)
        sessions: dict[str, Session] = {}
        try:
            with (
                settled(self.server, name, case.authors),
                psycopg.connect(database.superuser_dsn, autocommit=True) as owner,
            ):
                set_up(owner, case)
                sessions |= {a.role: Session(self.server, name, a) for a in case.authors}
                return chosen(made, owner, sessions, count)
        finally:
            for session in sessions.values():
                session.close()
            drop_database(self.server, name)

    @contextmanager
    def open(self, case: TypesCase) -> Iterator[Line]:
        name = f"types_{next(_numbers)}"
        database = create_database(self.server, name, template=TEMPLATE)
        try:
            with psycopg.connect(database.superuser_dsn, autocommit=True) as conn:
                conn.execute(
                    sql.SQL("ALTER DATABASE {} SET statement_timeout = {}").format(
                        sql.Identifier(name), sql.Literal(STATEMENT_MS)
                    )
                )
            with settled(self.server, name, case.authors):
                line = Kept(self.server, name, database.dsn, self.engine)
                try:
                    yield line
                finally:
                    line.close()
        finally:
            drop_database(self.server, name)


def set_up(owner: psycopg.Connection[Any], case: TypesCase) -> None:
    """By a superuser, who then is the owner of the tables."""
    for statement in (*case.setup, *case.views, "SET ROLE fz_team", "RESET search_path"):
        owner.execute(statement.encode())


def _features(conn: psycopg.Connection[Any]) -> Iterator[str]:
    tries = {
        "icu": 'CREATE COLLATION IF NOT EXISTS "Own Types".nocase '
        "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "vector": "CREATE SCHEMA IF NOT EXISTS vec; GRANT USAGE ON SCHEMA vec TO PUBLIC; "
        "CREATE EXTENSION IF NOT EXISTS vector SCHEMA vec",
    }
    for feature, statement in tries.items():
        try:
            conn.execute(statement.encode())
        except psycopg.Error:
            continue
        yield feature
