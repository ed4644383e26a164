"""An origin that was restored, to an earlier state or from a dump: its mirrors notice that and are loaded anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.db import install
from pgtrickle.db.discover import server_label
from pgtrickle.model.reasons import ReasonCode
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database, drop_database, prepare_server
from tests.line import Line
from tests.postgres.test_restore import no_spark, run


@pytest.fixture
def engine() -> Iterator[SparkEngine]:
    engine = SparkEngine(no_spark)
    yield engine
    engine.close()


def reasons(line: Line) -> list[str]:
    rows = line.sql(
        "SELECT h.reason_code FROM pgtrickle.pgt_refresh_history AS h JOIN pgtrickle.pgt_mirrors USING (pgt_id) "
        "WHERE h.action = 'REINITIALIZE' ORDER BY h.refresh_id"
    )
    return [row[0] for row in rows]


def settled(line: Line, rows: Callable[[], list[tuple[Any, ...]]]) -> None:
    for _ in range(10):
        line.tick()
        if line.rows("copied") == rows():
            return
    said = line.sql("SELECT pgt_name, status, last_error_message FROM pgtrickle.pgt_stream_tables")
    raise AssertionError((said, line.rows("copied"), rows()))


def put_back(server: EmbeddedPostgres, earlier: Path) -> None:
    """Replaces the data directory of a server by an earlier copy, at the same address."""
    server.stop()
    owner = server.data.stat()
    shutil.rmtree(server.data)
    shutil.copytree(earlier, server.data)
    for path in (server.data, *server.data.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    server.start()


@pytest.mark.parametrize("is_quiet", [False, True], ids=["writes go on", "quiet"])
def test_origin_restored_to_an_earlier_state_at_the_same_address(
    installed: Database, engine: SparkEngine, tmp_path: Path, is_quiet: bool
) -> None:
    with EmbeddedPostgres.create(durable=False) as server:
        prepare_server(server)
        origin = create_database(server, "crm")
        with psycopg.connect(origin.dsn) as conn:
            install(conn)
        origin.sql("CREATE TABLE people (id int PRIMARY KEY, name text); INSERT INTO people VALUES (1, 'a'), (2, 'b')")
        origins = OriginSessions((installed.dsn, origin.dsn))
        line = Line(installed.dsn, engine, origins=origins)

        def there() -> list[tuple[Any, ...]]:
            return sorted(origin.sql("SELECT id, name FROM people"), key=repr)

        query = f'SELECT id, name FROM "crm@{server_label(origin.dsn)}".public.people'
        line.create("copied", query, mode="FULL")
        settled(line, there)
        origin.sql("INSERT INTO people VALUES (3, 'c')")
        settled(line, there)
        before = line.sql("SELECT oid FROM pg_class WHERE relname ~ '^mirror_'")
        origin.close()
        server.stop()
        shutil.copytree(server.data, tmp_path / "earlier")
        server.start()
        origin.sql(
            "INSERT INTO people SELECT i, 'lost' FROM generate_series(10, 91) AS i; DELETE FROM people WHERE id = 1"
        )
        settled(line, there)
        put_back(server, tmp_path / "earlier")
        # later transactions than those that were lost: ids alone do not tell
        for i in range(200, 200 if is_quiet else 230):
            origin.sql(f"INSERT INTO people VALUES ({i}, 'new')")
        settled(line, there)
        assert reasons(line) == [ReasonCode.ORIGIN_WENT_BACK]
        # it follows again, and what is created now reads the same mirror, which is right
        origin.sql("UPDATE people SET name = 'x' WHERE id = 1")
        settled(line, there)
        line.sql("SELECT pgtrickle.drop_stream_table('copied')")
        line.create("copied", query, mode="FULL")
        settled(line, there)
        assert reasons(line) == [ReasonCode.ORIGIN_WENT_BACK]
        assert line.sql("SELECT oid FROM pg_class WHERE relname ~ '^mirror_'") == before
        line.close()
        origins.close()


def test_readings_are_forgotten_when_no_mirror_can_stand_there(
    make_installed: Callable[[], Database], engine: SparkEngine
) -> None:
    home, origin = make_installed(), make_installed()
    origin.sql("CREATE TABLE people (id int PRIMARY KEY)")
    origins = OriginSessions((home.dsn,))
    line, there = Line(home.dsn, engine, origins=origins), Line(origin.dsn, engine)
    line.create("copied", f"SELECT id FROM {origin.name}.public.people", mode="FULL")
    for i in range(5):
        origin.sql(f"INSERT INTO people VALUES ({i})")
        settled(line, lambda: sorted(origin.sql("SELECT id FROM people"), key=repr))
    origins.tell_all()
    origin.sql("UPDATE pgtrickle.pgt_readings SET read_at = read_at - interval '2 minutes'")
    there.plane.tidy()
    assert 1 <= origin.sql("SELECT count(*) FROM pgtrickle.pgt_readings")[0][0] <= 2
    origin.sql("INSERT INTO people VALUES (100)")
    settled(line, lambda: sorted(origin.sql("SELECT id FROM people"), key=repr))
    assert reasons(line) == []
    for each in (line, there):
        each.close()
    origins.close()


def test_origin_restored_from_a_dump_under_its_name(
    make_installed: Callable[[], Database], engine: SparkEngine, tmp_path: Path
) -> None:
    home, origin = make_installed(), make_installed()
    origin.sql("CREATE TABLE gone (a int); CREATE TABLE people (x int, id int PRIMARY KEY, name text)")
    origin.sql("ALTER TABLE people DROP COLUMN x; DROP TABLE gone; INSERT INTO people VALUES (1, 'a'), (2, 'b')")
    origins = OriginSessions((home.dsn,))
    line = Line(home.dsn, engine, origins=origins)

    def there() -> list[tuple[Any, ...]]:
        return sorted(origin.sql("SELECT id, name FROM people"), key=repr)

    line.create("copied", f"SELECT id, name FROM {origin.name}.public.people", mode="FULL")
    settled(line, there)
    dump = str(tmp_path / "origin.dump")
    run(origin.server, "pg_dump", "-Fc", "-f", dump, origin.name)
    origin.sql("INSERT INTO people VALUES (3, 'lost')")
    settled(line, there)
    origin.close()
    drop_database(origin.server, origin.name)
    create_database(origin.server, origin.name)
    run(origin.server, "pg_restore", "-d", origin.name, dump)
    Line(origin.dsn, engine).close()  # its own scheduler finds it
    origin.sql("INSERT INTO people VALUES (4, 'new')")
    settled(line, there)
    assert reasons(line) == [ReasonCode.ORIGIN_REPLACED]
    origin.sql("DELETE FROM people WHERE id = 1")
    settled(line, there)
    assert reasons(line) == [ReasonCode.ORIGIN_REPLACED]
    line.close()
    origins.close()
