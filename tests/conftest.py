"""Fixtures that all tests share: one PostgreSQL and one Spark Connect server per run, a fresh database per test.

The folder of a test sets its marker, so that `-m "not spark"` works without anybody having to remember it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before anything imports gRPC, as in `pipeline.engine.spark`: its fork handlers break servers that tests start.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

import hypothesis
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgtrickle.errors import EngineLostError
from pgtrickle.refresh import culprit
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres, installation
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from tests.long import takes_long

if TYPE_CHECKING:
    from pgtrickle.pipeline.engine.spark import SparkEngine

ROLE = "app"
ROLE_PASSWORD = "app"
INSTALLED_TEMPLATE = "template_installed"
FOLDERS = ("unit", "property", "golden", "postgres", "spark", "migration", "fleet", "security", "browser")

# The installation (bin, lib, share) of another PostgreSQL that the tests use instead of the embedded one.
ANOTHER_POSTGRES = os.environ.get("PGTRICKLE_TEST_POSTGRES")

_numbers = itertools.count(1)

# A busy machine is no failure, neither of an example nor of a strategy.
hypothesis.settings.register_profile(
    "without time bounds", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("without time bounds")


@pytest.fixture(scope="session", autouse=True)
def _own_template_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All tests of a session share one, as databases do; nothing is read from or left in that of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _culprits_are_searched_to_the_end() -> Iterator[None]:
    """The message of a failed refresh must not depend on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(culprit, "SECONDS", 600.0)
        yield


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    root = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(root).parts[0]
        if folder in FOLDERS:
            item.add_marker(getattr(pytest.mark, folder))
        if takes_long(item.nodeid.removeprefix(f"{root.name}/")):
            item.add_marker(pytest.mark.long)


class Database:
    """A database of the embedded server, owned by the ordinary role `app`."""

    def __init__(self, server: EmbeddedPostgres, name: str) -> None:
        self.server = server
        self.name = name
        self._connections: list[psycopg.Connection[Any]] = []

    @property
    def dsn(self) -> str:
        """As `app`."""
        return self.server.dsn(self.name, user=ROLE, password=ROLE_PASSWORD)

    @property
    def superuser_dsn(self) -> str:
        return self.server.dsn(self.name)

    def connect(self, *, autocommit: bool = True, superuser: bool = False, **options: Any) -> psycopg.Connection[Any]:
        """A connection as `app`; closed at the end of the test if the test does not do it."""
        dsn = self.superuser_dsn if superuser else self.dsn
        connection: psycopg.Connection[Any] = psycopg.connect(make_conninfo(dsn, **options), autocommit=autocommit)
        self._connections.append(connection)
        return connection

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        """Runs as `app` and returns the rows of the last statement; several statements only without parameters."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return run(connection, text, *params)

    def superuser_sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.superuser_dsn, autocommit=True) as connection:
            return run(connection, text, *params)

    def require_version(self, major: int, what: str, *, minor: int = 0) -> None:
        """Skips a test of a feature that another server of PGTRICKLE_TEST_POSTGRES may lack."""
        if int(self.sql("SHOW server_version_num")[0][0]) < major * 10_000 + minor:
            pytest.skip(f"{what}: since PostgreSQL {major}{f'.{minor}' if minor else ''}")

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()


def run(connection: psycopg.Connection[Any], text: str, *params: Any) -> list[tuple[Any, ...]]:
    cursor = connection.execute(text, params or None)
    while cursor.nextset():
        pass
    return cursor.fetchall() if cursor.description is not None else []


@pytest.fixture(scope="session")
def pg_server() -> Iterator[EmbeddedPostgres]:
    """One PostgreSQL for the whole run, 18 by default; tests that stop or crash a server make their own."""
    home = Path(ANOTHER_POSTGRES) if ANOTHER_POSTGRES else installation()
    has_statistics = (home / "lib" / "pg_stat_statements.so").exists()  # not in every wheel of scripts/test_versions.py
    server = EmbeddedPostgres.create(
        durable=False,
        home=home,
        settings={
            "max_connections": "200",
            "max_prepared_transactions": "20",
            # what a server was asked: tests of refreshes on Spark
            "shared_preload_libraries": "pg_stat_statements" if has_statistics else "",
        },
    )
    with server:
        prepare_server(server)
        yield server


def prepare_server(server: EmbeddedPostgres) -> None:
    """The role that the tests work as: it can log in, and nothing else."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} NOSUPERUSER NOCREATEROLE NOCREATEDB").format(
                sql.Identifier(ROLE), sql.Literal(ROLE_PASSWORD)
            )
        )
        reset_role(connection, ROLE)


def reset_role(connection: psycopg.Connection[Any], role: str) -> None:
    """The settings of a role that outlives a test, as all tests expect them."""
    connection.execute(sql.SQL("ALTER ROLE {} RESET ALL").format(sql.Identifier(role)))
    if role == ROLE:
        # Many tests write to stream tables; tests/postgres/test_protection.py tests what refuses that.
        connection.execute(sql.SQL("ALTER ROLE {} SET pgtrickle.applies = 'on'").format(sql.Identifier(role)))


def create_database(server: EmbeddedPostgres, name: str, *, template: str = "template1") -> Database:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {} {}").format(
                sql.Identifier(name),
                sql.Identifier(ROLE),
                sql.Identifier(template),
                # Copies a small template without a checkpoint.
                sql.SQL("STRATEGY wal_log" if connection.info.server_version >= 150000 else ""),
            )
        )
    return Database(server, name)


def drop_database(server: EmbeddedPostgres, name: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def make_database(pg_server: EmbeddedPostgres) -> Iterator[Callable[..., Database]]:
    """For tests that need several databases: `make_database()`, or `make_database(template=...)`."""
    made: list[Database] = []

    def make(*, template: str = "template1") -> Database:
        database = create_database(pg_server, f"test_{next(_numbers)}", template=template)
        made.append(database)
        return database

    yield make
    for database in made:
        database.close()
        if pg_server.alive():
            drop_database(pg_server, database.name)


@pytest.fixture
def database(make_database: Callable[..., Database]) -> Database:
    """A fresh database without pgtrickle."""
    return make_database()


@pytest.fixture(scope="session")
def installed_template(pg_server: EmbeddedPostgres) -> str:
    """A template with pgtrickle installed by `app`, so that a test's copy takes milliseconds."""
    from pgtrickle.db.install import install

    database = create_database(pg_server, INSTALLED_TEMPLATE)
    with psycopg.connect(database.dsn) as connection:
        install(connection)
    return INSTALLED_TEMPLATE


@pytest.fixture
def make_installed(make_database: Callable[..., Database], installed_template: str) -> Callable[[], Database]:
    """For tests that need several databases with pgtrickle."""
    return lambda: make_database(template=installed_template)


@pytest.fixture
def installed(make_installed: Callable[[], Database]) -> Database:
    """A fresh database with pgtrickle installed as the ordinary role `app`."""
    return make_installed()


@pytest.fixture
def make_role() -> Iterator[Callable[[Database], psycopg.Connection[Any]]]:
    """Connects as a new role that has USAGE on schema pgtrickle and nothing else."""
    made: list[tuple[Database, str, psycopg.Connection[Any]]] = []

    def make(database: Database) -> psycopg.Connection[Any]:
        name = f"role_{next(_numbers)}"
        database.superuser_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA pgtrickle TO {name}")
        connection = psycopg.connect(database.server.dsn(database.name, user=name, password="x"), autocommit=True)
        made.append((database, name, connection))
        return connection

    yield make
    for database, name, connection in made:
        connection.close()
        database.superuser_sql(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture(scope="session")
def spark_server() -> Iterator[SparkServer]:
    """One Spark Connect server for the whole run."""
    server = SparkServer.start(Settings(spark_driver_memory_mb=2048))
    try:
        server.wait_ready(120)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def spark_url(spark_server: SparkServer) -> str:
    """What `SparkSession.builder.remote` and `pgtrickle run --spark-remote` take."""
    return spark_server.url


@pytest.fixture(scope="session")
def spark(spark_url: str) -> str:
    """The same, by the short name."""
    return spark_url


@pytest.fixture(scope="session")
def engine(spark_url: str) -> Iterator[SparkEngine]:
    """The run's one Spark engine, warm."""
    from pgtrickle.pipeline.engine.spark import SparkEngine

    engine = SparkEngine(lambda: spark_url)
    _warm_up(engine)
    yield engine
    engine.close()


def _warm_up(engine: SparkEngine, attempts: int = 5) -> None:
    """As often as a refresh would: on a busy machine the first call to a new server may fail."""
    for attempt in range(1, attempts + 1):
        try:
            for _ in engine.warm_up(10):
                pass
        except EngineLostError:
            if attempt == attempts:
                raise
        else:
            return
