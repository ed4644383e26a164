"""A server of the fleet that has got another address: its tables are read there, and nothing is loaded again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgtrickle.db.discover import server_label
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from tests.conftest import Database
from tests.line import Line
from tests.postgres.test_origin_restored import reasons, settled
from tests.postgres.test_restore import no_spark


@pytest.fixture
def engine() -> Iterator[SparkEngine]:
    engine = SparkEngine(no_spark)
    yield engine
    engine.close()


def move(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pgtrickle.cli", "server", "move", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_mirrors_are_read_at_the_new_address(make_installed: Callable[[], Database], engine: SparkEngine) -> None:
    home, origin = make_installed(), make_installed()
    origin.sql("CREATE TABLE people (id int PRIMARY KEY, name text); INSERT INTO people VALUES (1, 'a'), (2, 'b')")
    new = server_label(home.dsn)
    before = make_conninfo(origin.dsn, host="localhost")  # one server under two addresses
    old = server_label(before)
    assert old != new

    def there() -> list[tuple[Any, ...]]:
        return sorted(origin.sql("SELECT id, name FROM people"), key=repr)

    origins = OriginSessions((home.dsn, before))
    line = Line(home.dsn, engine, origins=origins)
    line.create("copied", f'SELECT id, name FROM "{origin.name}@{old}".public.people', mode="FULL")
    settled(line, there)
    assert line.sql("SELECT origin_server FROM pgtrickle.pgt_mirrors") == [(old,)]
    line.close()
    origins.close()

    origins = OriginSessions((home.dsn,))  # the old address is gone
    line = Line(home.dsn, engine, origins=origins)
    origin.sql("INSERT INTO people VALUES (3, 'c')")
    line.tick()
    assert line.rows("copied") != there()
    done = move(old, new, "--server", home.dsn)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{home.name}@{new}: 1 mirrors and readers moved" in done.stdout
    settled(line, there)
    assert reasons(line) == []
    ((typed,),) = line.sql("SELECT original_query FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'copied'")
    assert f'"{origin.name}@{new}"' in typed
    done = move(old, new, "--server", home.dsn)
    assert done.returncode == 1
    assert "nothing is read from" in done.stdout
    assert move(old, "nowhere", "--server", home.dsn).returncode != 0
    line.close()
    origins.close()


def test_only_the_service_role_may_move(
    installed: Database, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        make_role(installed).execute("SELECT pgtrickle.move_server('a:1', 'b:2')")
