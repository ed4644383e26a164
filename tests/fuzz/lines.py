"""Fresh databases with a line each, one after the other, on one server and one engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import create_database, drop_database
from tests.fuzz.case import Wave
from tests.fuzz.lively import chosen
from tests.fuzz.wave import HEAVY_MS, STATEMENT_MS
from tests.line import Line

_numbers = itertools.count(1)


class Lines:
    def __init__(self, server: EmbeddedPostgres, template: str, engine: SparkEngine) -> None:
        self.server = server
        self.template = template
        self.engine = engine

    def wave(self, seed: int) -> Wave:
        """The seed's lively queries."""
        name = f"fuzz_{next(_numbers)}"
        database = create_database(self.server, name)
        try:
            with psycopg.connect(database.dsn, autocommit=True) as conn:
                conn.execute(sql.SQL("SET statement_timeout = {}").format(sql.Literal(HEAVY_MS)))
                return chosen(conn, seed)
        finally:
            drop_database(self.server, name)

    @contextmanager
    def open(self) -> Iterator[Line]:
        name = f"fuzz_{next(_numbers)}"
        database = create_database(self.server, name, template=self.template)
        try:
            with psycopg.connect(database.superuser_dsn, autocommit=True) as conn:
                conn.execute(
                    sql.SQL("ALTER DATABASE {} SET statement_timeout = {}").format(
                        sql.Identifier(name), sql.Literal(STATEMENT_MS)
                    )
                )
            line = Line(database.dsn, self.engine)
            try:
                yield line
            finally:
                line.close()
        finally:
            drop_database(self.server, name)
