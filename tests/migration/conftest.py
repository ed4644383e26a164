"""Each test gets the databases of an earlier version as they were loaded once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, prepare_server
from tests.line import Line
from tests.migration.earlier import Earlier
from tests.migration.fixture import VERSIONS, load
from tests.migration.make_fixture import MAIN, ORIGIN


@pytest.fixture(scope="session", params=VERSIONS)
def loaded(request: pytest.FixtureRequest) -> Iterator[tuple[int, EmbeddedPostgres, Path]]:
    """The version, a stopped server and a copy of its data with the fixture loaded. A server of its own, where oids are
    to be had that others have used elsewhere."""
    server = EmbeddedPostgres.create(durable=False)
    with server:
        prepare_server(server)
        for database in load(request.param, server):
            database.close()
        server.stop()
        pristine = server.data.with_name("pristine")
        subprocess.run(["cp", "-a", server.data, pristine], check=True)
        yield int(request.param.removeprefix("v")), server, pristine


@pytest.fixture
def earlier(loaded: tuple[int, EmbeddedPostgres, Path]) -> Iterator[Earlier]:
    version, server, pristine = loaded
    shutil.rmtree(server.data)
    subprocess.run(["cp", "-a", pristine, server.data], check=True)
    server.start()
    main, origin = Database(server, MAIN), Database(server, ORIGIN)
    yield Earlier(version, main, origin)
    main.close()
    origin.close()
    server.stop("immediate")


@pytest.fixture
def make_line(engine: SparkEngine) -> Iterator[Callable[[str], Line]]:
    made: list[Line] = []

    def make(dsn: str) -> Line:
        made.append(Line(dsn, engine, origins=OriginSessions()))
        return made[-1]

    yield make
    for line in made:
        line.close()
