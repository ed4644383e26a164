"""A database that comes from a backup or is a copy: its stream tables are found again by name, and loaded anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtrickle.db import install
from pgtrickle.errors import TransientError
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database, drop_database
from tests.line import Line

WORLD = """
CREATE SCHEMA shop;
CREATE TYPE shop.colour AS ENUM ('red', 'green', 'blue');
CREATE FUNCTION shop.twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE TABLE shop."Odd Items" (id int PRIMARY KEY, "Kind" shop.colour, price numeric(10,2));
CREATE TABLE shop.gone (x int);
CREATE TABLE shop.sales (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item int, dropped int, amount int);
ALTER TABLE shop.sales DROP COLUMN dropped;
CREATE VIEW shop.rich AS SELECT id, price FROM shop."Odd Items" WHERE price > 10;
INSERT INTO shop."Odd Items" VALUES (1, 'red', 5), (2, 'green', 15), (3, 'blue', 25), (4, NULL, NULL);
INSERT INTO shop.sales (item, amount) SELECT 1 + i % 4, i FROM generate_series(1, 40) AS i;
"""
TABLES = {
    "shop.by_kind": 'SELECT i."Kind", sum(s.amount) AS total FROM shop."Odd Items" i JOIN shop.sales s ON s.item = i.id'
    " GROUP BY 1",
    "shop.of_view": "SELECT id, price FROM shop.rich",
    "shop.doubled": "SELECT id, shop.twice(amount) AS two FROM shop.sales",
    "shop.parts": "SELECT item, amount FROM shop.sales",
    "shop.totals": 'SELECT "Kind", total + 1 AS more FROM shop.by_kind',
}


def no_spark() -> str:
    raise AssertionError("these tests need no Spark")


@pytest.fixture
def engine() -> Iterator[SparkEngine]:
    """Loads and full refreshes are computed inside the server."""
    engine = SparkEngine(no_spark)
    yield engine
    engine.close()


@pytest.fixture
def lines(engine: SparkEngine) -> Iterator[Callable[..., Line]]:
    made: list[Line] = []

    def make(database: Database) -> Line:
        made.append(Line(database.dsn, engine, origins=OriginSessions((database.dsn,))))
        return made[-1]

    yield make
    for line in made:
        line.close()


@pytest.fixture
def shop(installed: Database, lines: Callable[..., Line]) -> Database:
    line = lines(installed)
    line.sql(WORLD)
    for name, query in TABLES.items():
        if name != "shop.parts":
            line.create(name, query, mode="FULL")
    line.sql(
        "SELECT pgtrickle.create_stream_table('shop.parts', %s, 'calculated', 'FULL', partition_by => 'LIST(item)')",
        TABLES["shop.parts"],
    )
    line.tick()
    line.sql("CREATE INDEX ON shop.by_kind (total); GRANT SELECT ON shop.by_kind TO PUBLIC")
    for name in TABLES:
        line.equal(name)
    line.close()
    return installed


def run(server: EmbeddedPostgres, program: str, *arguments: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "PGPASSWORD": server.password, "LC_ALL": "C"}
    done = subprocess.run(
        [str(server.program(program)), "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def empty_database(server: EmbeddedPostgres, name: str) -> Iterator[Database]:
    database = create_database(server, name)
    # so that no oid is what it was
    database.sql("; ".join(f"CREATE TABLE shift_{i} (a int)" for i in range(7)))
    yield database
    database.close()
    drop_database(server, name)


@pytest.fixture
def target(pg_server: EmbeddedPostgres) -> Iterator[Database]:
    yield from empty_database(pg_server, "restored_here")


def follows(line: Line) -> None:
    """A change is captured and arrives."""
    before = {name: line.rows(name) for name in TABLES}
    line.sql('INSERT INTO shop.sales (item, amount) VALUES (2, 1000); UPDATE shop."Odd Items" SET price = price + 9')
    line.tick()
    for name in TABLES:
        assert line.rows(name) != before[name], name
        line.check(name, "FULL")


def all_right(line: Line) -> None:
    line.tick()
    for name in TABLES:
        said = "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s"
        assert line.sql(said, name.removeprefix("shop.")) == [("ACTIVE", None)]
        line.equal(name)
    assert (
        line.sql("SELECT severity FROM pgtrickle.health_check() WHERE severity <> 'OK' AND check_name <> 'scheduler'")
        == []
    )


def test_logical_dump_of_a_whole_database(
    shop: Database, target: Database, lines: Callable[..., Line], tmp_path: Path
) -> None:
    dump = str(tmp_path / "whole.dump")
    run(shop.server, "pg_dump", "-Fc", "-f", dump, shop.name)
    for section in ("pre-data", "data"):
        run(shop.server, "pg_restore", "-d", target.name, f"--section={section}", dump)
    with pytest.raises(TransientError, match="a restore is not finished"):
        lines(target)
    run(shop.server, "pg_restore", "-d", target.name, "--section=post-data", dump)
    target.sql("DELETE FROM shop.sales WHERE id < 10")  # before anybody looks
    line = lines(target)
    all_right(line)
    follows(line)
    # nothing is left that belongs to the numbers of the other database
    stray = "SELECT tgname FROM pg_trigger WHERE tgname ~ '^pgtrickle_[0-9]' AND tgname !~ ('_' || tgrelid || '_')"
    assert line.sql(stray) == []
    assert line.sql("SELECT source_relid FROM pgtrickle.pgt_sources EXCEPT SELECT oid FROM pg_class") == []
    # ... and the original goes on
    other = lines(shop)
    other.sql("INSERT INTO shop.sales (item, amount) VALUES (3, 7)")
    other.tick()
    for name in TABLES:
        other.equal(name)
    # a definition still belongs to its author and can be changed
    line.sql("SELECT pgtrickle.alter_stream_table('shop.of_view', query => 'SELECT id FROM shop.rich')")
    line.tick()
    line.equal("shop.of_view")


def test_dump_of_the_schemas_alone_and_as_sql(
    shop: Database, target: Database, lines: Callable[..., Line], tmp_path: Path
) -> None:
    dump = str(tmp_path / "schemas.sql")
    run(shop.server, "pg_dump", "-n", "shop", "-n", "pgtrickle", "-n", "pgtrickle_changes", "-f", dump, shop.name)
    run(shop.server, "psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", dump, target.name)
    # a missing source stops its readers alone, until it is there
    target.sql("ALTER TABLE shop.sales RENAME TO elsewhere")
    line = lines(target)
    line.tick()
    found = dict(line.sql("SELECT pgt_name, status FROM pgtrickle.pgt_stream_tables"))
    assert found == {
        "by_kind": "ERROR",
        "of_view": "ACTIVE",
        "doubled": "ERROR",
        "parts": "ERROR",
        "totals": "INITIALIZING",
    }
    ((message,),) = line.sql("SELECT last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'doubled'")
    assert "shop.sales" in message
    line.sql("ALTER TABLE shop.elsewhere RENAME TO sales")
    line.plane.tidy()
    all_right(line)
    follows(line)


def test_schema_restored_into_the_database_that_it_comes_from(
    shop: Database, lines: Callable[..., Line], tmp_path: Path
) -> None:
    dump = str(tmp_path / "clean.dump")
    run(
        shop.server, "pg_dump", "-Fc", "-n", "shop", "-n", "pgtrickle", "-n", "pgtrickle_changes", "-f", dump, shop.name
    )
    shop.sql(
        "INSERT INTO shop.sales (item, amount) VALUES (3, 99); DROP SCHEMA shop, pgtrickle, pgtrickle_changes CASCADE"
    )
    run(shop.server, "pg_restore", "-d", shop.name, dump)
    line = lines(shop)
    all_right(line)
    follows(line)


def test_storage_that_was_dropped_and_restored_is_found_while_running(
    shop: Database, lines: Callable[..., Line], tmp_path: Path
) -> None:
    dump = str(tmp_path / "table.dump")
    run(shop.server, "pg_dump", "-Fc", "-t", "shop.doubled", "-f", dump, shop.name)
    line = lines(shop)
    line.sql("DROP TABLE shop.doubled")
    run(shop.server, "pg_restore", "-d", shop.name, dump)
    line.plane.tidy()
    all_right(line)
    follows(line)


def test_cloned_database_beside_its_original(
    shop: Database, make_database: Callable[..., Database], lines: Callable[..., Line]
) -> None:
    shop.sql("INSERT INTO pgtrickle.pgt_readers (reader_key, mirror_id, reader_server, reader_database, source_relid) "
             "VALUES ('1/2', 3, '', 'somebody', 'shop.sales'::regclass)")  # fmt: skip
    clone = make_database(template=shop.name)
    line, other = lines(clone), lines(shop)
    line.sql("DELETE FROM shop.sales WHERE id > 20")
    other.sql("INSERT INTO shop.sales (item, amount) VALUES (3, 7)")
    for each in (line, other):
        all_right(each)
        follows(each)
    # who reads the original has never read the clone: nothing is kept there for it
    readers = "SELECT count(*) FROM pgtrickle.pgt_readers"
    assert (line.sql(readers), other.sql(readers)) == ([(0,)], [(1,)])


def test_promoted_standby_goes_on(engine: SparkEngine) -> None:
    with EmbeddedPostgres.create(durable=False) as primary:
        with psycopg.connect(primary.dsn(), autocommit=True) as conn:
            install(conn)
            conn.execute("CREATE SCHEMA shop; CREATE TABLE shop.t (a int); INSERT INTO shop.t VALUES (1)")
        line = Line(primary.dsn(), engine)
        line.create("shop.s", "SELECT a FROM shop.t", mode="FULL")
        standby = EmbeddedPostgres.create(durable=False)
        try:
            follow(primary, standby)
            line.sql("INSERT INTO shop.t VALUES (2)")
            line.tick()
            wait_for(standby, "SELECT count(*) FROM shop.s", 2)
            line.close()
            primary.stop("immediate")
            with psycopg.connect(standby.dsn(), autocommit=True) as conn:
                conn.execute("SELECT pg_promote()")
            line = Line(standby.dsn(), engine)
            line.sql("INSERT INTO shop.t VALUES (3)")
            line.tick()
            line.check("shop.s", "FULL")
            assert line.rows("shop.s") == [(1,), (2,), (3,)]
            # nothing had to be loaded anew
            assert line.sql("SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'REINITIALIZE'") == [
                (0,)
            ]
            line.close()
        finally:
            standby.close()


def test_physical_copy_beside_its_original(engine: SparkEngine) -> None:
    """With the same identities and oids. Each goes on from where the copy was made; nothing is loaded anew."""
    with EmbeddedPostgres.create(durable=False) as original:
        with psycopg.connect(original.dsn(), autocommit=True) as conn:
            install(conn)
            conn.execute("CREATE SCHEMA shop; CREATE TABLE shop.t (a int); INSERT INTO shop.t VALUES (1), (2)")
        first = Line(original.dsn(), engine)
        first.create("shop.s", "SELECT a, count(*) AS n FROM shop.t GROUP BY a", mode="DIFFERENTIAL")
        first.sql("INSERT INTO shop.t VALUES (2)")  # captured and not yet refreshed
        copy = EmbeddedPostgres.create(durable=False)
        try:
            follow(original, copy, as_standby=False)
            second = Line(copy.dsn(), engine)
            first.sql("INSERT INTO shop.t VALUES (3)")
            second.sql("DELETE FROM shop.t WHERE a = 1")
            for line, rows in ((first, [(1, 1), (2, 2), (3, 1)]), (second, [(2, 2)])):
                line.tick()
                line.check("shop.s")
                assert line.rows("shop.s") == rows
                loads = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'REINITIALIZE'"
                assert line.sql(loads) == [(0,)]
                line.close()
        finally:
            copy.close()


def follow(primary: EmbeddedPostgres, standby: EmbeddedPostgres, *, as_standby: bool = True) -> None:
    """Makes `standby` a standby, or a copy, of `primary`, and starts it."""
    owner = standby.data.stat()
    shutil.rmtree(standby.data)
    run(primary, "pg_basebackup", "-D", str(standby.data), "-c", "fast", *(["-R"] if as_standby else []))
    for path in (standby.data, *standby.data.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
    standby.password = primary.password
    standby.start()


def wait_for(server: EmbeddedPostgres, query: str, value: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            if conn.execute(query).fetchone() == (value,):
                return
        time.sleep(0.05)
    raise AssertionError(query)
