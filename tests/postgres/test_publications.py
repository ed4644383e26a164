"""Stream tables for logical replication: the publication, and a second database that follows through it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle.capture.compact import Compactor
from pgtrickle.capture.install import ensure_capture
from pgtrickle.capture.trim import trim_all
from pgtrickle.db import Connection, connect
from pgtrickle.db.install import install, uninstall
from pgtrickle.publish.subscribers import laggards
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database, prepare_server
from tests.postgres.rows import create

PUBLISHED = (
    "SELECT pubname::text, schemaname || '.' || tablename, attnames::text[] FROM pg_publication_tables ORDER BY 1, 2"
)
OPEN = "SELECT pgtrickle.protect_stream_table('s', false); "
IDENTITY = "SELECT relreplident::text FROM pg_class WHERE oid = 's'::regclass"


@pytest.fixture
def conn(db: Database) -> Iterator[Connection]:
    with connect(db.dsn, role="test", autocommit=True) as connection:
        yield connection


def publish(db: Database, name: str = "s") -> str:
    return str(db.sql("SELECT pgtrickle.stream_table_to_publication(%s)", name)[0][0])


# -- the catalog


def test_a_stream_table_is_published_with_its_hidden_column(db: Database) -> None:
    create(db, "s", "SELECT a, b FROM t")
    assert publish(db) == "pgt_pub_public_s"
    assert publish(db) == "pgt_pub_public_s"
    assert db.sql(PUBLISHED) == [("pgt_pub_public_s", "public.s", ["a", "b", "__pgt_row_id"])]
    assert db.sql(IDENTITY) == [("f",)]
    db.sql(f"{OPEN}INSERT INTO s VALUES (1, 1, 1); UPDATE s SET a = 2; DELETE FROM s")
    db.sql("SELECT pgtrickle.drop_stream_table_publication('s')")
    assert db.sql(PUBLISHED) == []
    with pytest.raises(psycopg.errors.UndefinedObject, match="not published"):
        db.sql("SELECT pgtrickle.drop_stream_table_publication('s')")


def test_a_key_leaves_the_hidden_column_out(db: Database) -> None:
    create(db, "s", "SELECT a, b FROM t")
    publish(db)
    db.sql("ALTER TABLE s ALTER a SET NOT NULL; CREATE UNIQUE INDEX ON s (a)")
    publish(db)
    assert db.sql(PUBLISHED) == [("pgt_pub_public_s", "public.s", ["a", "b"])]
    assert db.sql(IDENTITY) == [("i",)]
    db.sql(f"{OPEN}INSERT INTO s VALUES (1, 1, 1); UPDATE s SET a = 2; DELETE FROM s")
    db.sql("SELECT pgtrickle.drop_stream_table_publication('s')")
    assert db.sql(IDENTITY) == [("f",)]


@pytest.mark.parametrize("has_key", [False, True])
def test_new_columns_and_new_storage_stay_published(db: Database, has_key: bool) -> None:
    pgt_id = create(db, "s", "SELECT a, b FROM t")
    if has_key:
        db.sql("ALTER TABLE s ALTER a SET NOT NULL; CREATE UNIQUE INDEX ON s (a)")
    publish(db)
    db.sql("SELECT pgtrickle.alter_stream_table('s', query => 'SELECT b AS c FROM t')")
    db.sql(f"SET pgtrickle.applies = on; SELECT pgtrickle._reshape({pgt_id})")  # as the load of the new query does
    assert db.sql(PUBLISHED) == [("pgt_pub_public_s", "public.s", ["c", "__pgt_row_id"])]
    db.sql(f"{OPEN}INSERT INTO s VALUES (1, 1); DELETE FROM s")
    db.sql("DROP TABLE s")
    assert db.sql(PUBLISHED) == []
    db.sql("SELECT pgtrickle.repair_stream_table('s')")
    assert db.sql(PUBLISHED) == [("pgt_pub_public_s", "public.s", ["c", "__pgt_row_id"])]
    db.sql("DROP PUBLICATION pgt_pub_public_s")
    assert publish(db) == "pgt_pub_public_s"
    db.sql("SELECT pgtrickle.drop_stream_table('s')")
    assert db.sql("SELECT count(*) FROM pg_publication") == [(0,)]
    assert db.sql("SELECT count(*) FROM pgtrickle.pgt_publications") == [(0,)]


def test_names_are_cut_and_kept_apart(db: Database) -> None:
    long = "ä" * 31
    db.sql(f'CREATE SCHEMA a_b; CREATE SCHEMA a; CREATE SCHEMA "{long}"; CREATE SCHEMA ";"')
    for name in ("a_b.c", "a.b_c", f'"{long}"."{long}"', '";"."x\'""y"'):
        create(db, name)
    first, second = publish(db, "a_b.c"), publish(db, "a.b_c")
    assert first == "pgt_pub_a_b_c"
    assert second.startswith("pgt_pub_a_b_c_")
    cut = publish(db, f'"{long}"."{long}"')
    assert len(cut.encode()) <= 63
    assert publish(db, '";"."x\'""y"') == "pgt_pub_;_x'\"y"
    assert len(db.sql(PUBLISHED)) == 4
    for name in ("a_b.c", "a.b_c", f'"{long}"."{long}"', '";"."x\'""y"'):
        db.sql("SELECT pgtrickle.drop_stream_table_publication(%s)", name)
    assert db.sql("SELECT count(*) FROM pg_publication") == [(0,)]


def test_wal_level_is_warned_of_and_nothing_else_fails(db: Database) -> None:
    create(db)
    connection, heard = db.connect(), []
    connection.add_notice_handler(lambda d: heard.append((d.severity, d.message_primary, d.message_hint)))
    for _ in range(2):
        connection.execute("SELECT pgtrickle.stream_table_to_publication('s')")
    assert [(severity, "wal_level is replica" in str(text)) for severity, text, _ in heard] == [("WARNING", True)] * 2
    assert "wal_level = logical" in str(heard[0][2])


def test_publications_go_when_pgtrickle_goes(database: Database) -> None:
    database.sql("CREATE TABLE t (a int)")
    with connect(database.dsn, role="test", autocommit=True) as conn:
        install(conn)
        conn.execute("SELECT pgtrickle.create_stream_table('public.s', 'SELECT a FROM public.t')")
        conn.execute("SELECT pgtrickle.stream_table_to_publication('public.s')")
        uninstall(conn)
    assert database.sql("SELECT count(*) FROM pg_publication") == [(0,)]


# -- replication


@pytest.fixture(scope="module")
def logical() -> Iterator[EmbeddedPostgres]:
    settings = {"wal_level": "logical", "max_replication_slots": "10", "max_wal_senders": "10", "fsync": "off"}
    with EmbeddedPostgres.create(durable=False, settings=settings) as server:
        prepare_server(server)
        yield server


@pytest.fixture
def home(logical: EmbeddedPostgres) -> Iterator[Database]:
    database = create_database(logical, "home")
    with connect(database.dsn, role="test", autocommit=True) as conn:
        install(conn)
    database.sql("CREATE TABLE t (a int, b int)")
    create(database, "s", "SELECT a, b FROM t")
    yield database
    database.close()


def until(what: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def rows(database: Database, table: str) -> list[tuple[Any, ...]]:
    return database.superuser_sql(f"SELECT a, b FROM {table} ORDER BY 1, 2")


def test_a_second_database_follows(logical: EmbeddedPostgres, home: Database) -> None:
    away = create_database(logical, "away")
    home.sql(f"{OPEN}INSERT INTO s VALUES (1, 1, 5), (1, 1, 5), (2, NULL, 6)")
    publication = publish(home)
    away.superuser_sql("CREATE TABLE s (a int, b int, __pgt_row_id bigint)")
    # A slot for a subscription to a database of the same server is made by hand: it would wait for its own transaction.
    home.superuser_sql("SELECT pg_create_logical_replication_slot('follower', 'pgoutput')")
    away.superuser_sql(
        f"CREATE SUBSCRIPTION follower CONNECTION '{home.superuser_dsn}' PUBLICATION {publication} "
        "WITH (create_slot = false, slot_name = 'follower')"
    )
    until(lambda: rows(away, "s") == rows(home, "s"))
    home.sql("UPDATE s SET b = 7 WHERE ctid = (SELECT min(ctid) FROM s)")
    home.sql("DELETE FROM s WHERE a = 2; INSERT INTO s VALUES (3, 3, 7)")
    until(lambda: rows(away, "s") == rows(home, "s") == [(1, 1), (1, 7), (3, 3)])
    # With a key here and there, a plain table is enough.
    home.sql("DELETE FROM s; ALTER TABLE s ALTER a SET NOT NULL; CREATE UNIQUE INDEX ON s (a)")
    publish(home)
    until(lambda: rows(away, "s") == [])
    away.superuser_sql("ALTER TABLE s DROP COLUMN __pgt_row_id, ADD PRIMARY KEY (a)")
    home.sql("INSERT INTO s VALUES (1, 1, 1), (2, 2, 2); UPDATE s SET a = 5 WHERE a = 1; DELETE FROM s WHERE a = 2")
    until(lambda: rows(away, "s") == rows(home, "s") == [(5, 1)])

    ((kind, table, name, active, since),) = home.superuser_sql(
        "SELECT kind, stream_table, subscriber, active, since FROM pgtrickle.subscribers()"
    )
    assert (kind, table, name, active, since is not None) == ("slot", None, "follower", True, True)
    away.superuser_sql("ALTER SUBSCRIPTION follower DISABLE")
    until(lambda: home.sql("SELECT active FROM pgtrickle.subscribers()") == [(False,)])

    with connect(home.dsn, role="test", autocommit=True) as conn:
        held_for_the_slot(home, conn)
        away.superuser_sql("ALTER SUBSCRIPTION follower ENABLE")
        until(lambda: rows(away, "s") == rows(home, "s"))
        until(lambda: trim_all(conn) != {})
        home.sql("SELECT pgtrickle.drop_stream_table_publication('s')")
        assert home.sql("SELECT * FROM pgtrickle.subscribers()") == []
    away.superuser_sql("ALTER SUBSCRIPTION follower DISABLE; ")
    away.superuser_sql("ALTER SUBSCRIPTION follower SET (slot_name = NONE)")
    away.superuser_sql("DROP SUBSCRIPTION follower")
    until(lambda: not home.superuser_sql("SELECT active FROM pg_replication_slots WHERE active"))
    home.superuser_sql("SELECT pg_drop_replication_slot('follower')")


def held_for_the_slot(home: Database, conn: Connection) -> None:
    """What a slot has not confirmed is neither trimmed nor netted, and counts as lag."""
    ((relid,),) = home.sql("SELECT 's'::regclass::oid::int8")
    ensure_capture(conn, relid, [1, 2])
    home.sql("INSERT INTO s VALUES (8, 8, 8)")
    home.sql("DELETE FROM s WHERE a = 8")
    count = f"SELECT count(*) FROM pgtrickle_changes.changes_{relid}"
    assert trim_all(conn) == {}
    assert Compactor().round(conn, 1) == {relid: 0}
    assert home.sql(count) == [(2,)]
    (behind,) = laggards(conn, 10)
    assert (behind.kind, behind.table, behind.name) == ("slot", None, "follower")
