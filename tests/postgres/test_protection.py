"""Direct writes to stream tables are refused; sources that are read are not dropped by accident."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtrickle.db.connect import TRANSACTION, connect
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import ROLE, Database
from tests.line import Line
from tests.postgres.test_restore import empty_database, no_spark, run

WRITES = [
    ("INSERT INTO s (id, v, __pgt_row_id) VALUES (9, 9, 9)", "cannot insert into stream table public.s"),
    ("UPDATE s SET v = 0", "cannot update stream table public.s"),
    ("DELETE FROM s WHERE false", "cannot delete from stream table public.s"),
    ("TRUNCATE s", "cannot truncate stream table public.s"),
    ("COPY s (id, v, __pgt_row_id) FROM PROGRAM 'true'", "cannot insert into stream table public.s"),
    ("WITH gone AS (DELETE FROM s RETURNING 1) SELECT count(*) FROM gone", "cannot delete from stream table public.s"),
    ("MERGE INTO s USING t ON s.id = t.id WHEN MATCHED THEN DELETE", "cannot delete from stream table public.s"),
]


@pytest.fixture(autouse=True)
def without_exception(installed: Database) -> None:
    """Other tests may write to stream tables (tests/conftest.py)."""
    installed.superuser_sql(f"ALTER ROLE {ROLE} IN DATABASE {installed.name} SET pgtrickle.applies = 'off'")


@pytest.fixture
def line(installed: Database) -> Iterator[Line]:
    engine = SparkEngine(no_spark)
    line = Line(installed.dsn, engine)
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 20)")
    line.create("s", "SELECT id, v FROM t", mode="FULL")
    yield line
    line.close()
    engine.close()


@pytest.mark.parametrize(("write", "message"), WRITES)
def test_owner_and_superuser_cannot_write(line: Line, installed: Database, write: str, message: str) -> None:
    for sql in (installed.sql, installed.superuser_sql):
        if "PROGRAM" in write and sql == installed.sql:
            continue  # which only a superuser may
        with pytest.raises(psycopg.errors.WrongObjectType, match=message) as refused:
            sql(write)
        assert "protect_stream_table('public.s', false)" in (refused.value.diag.message_hint or "")
    line.check("s", "FULL")


def test_refreshes_and_loads_go_on(line: Line) -> None:
    line.sql("INSERT INTO t VALUES (3, 30); DELETE FROM t WHERE id = 1")
    line.tick()
    line.check("s", "FULL")
    line.sql("SELECT pgtrickle.alter_stream_table('s', query => 'SELECT id, v, v * 2 AS twice FROM t')")
    line.tick()
    line.check("s", "REINITIALIZE")
    line.sql("SELECT pgtrickle.alter_stream_table('s', query => 'SELECT count(*) AS n FROM t')")
    line.tick()
    line.check("s", "REINITIALIZE")
    line.sql("DROP TABLE s; SELECT pgtrickle.repair_stream_table('s')")
    line.tick()
    line.equal("s")
    with pytest.raises(psycopg.errors.WrongObjectType):
        line.sql("DELETE FROM s")


def test_behind_a_pooler_the_setting_lasts_for_our_transaction_only(line: Line, installed: Database) -> None:
    with connect(installed.dsn, role="test", autocommit=True, pooler=TRANSACTION) as conn:
        conn.execute("UPDATE public.s SET v = v")
        with pytest.raises(psycopg.errors.WrongObjectType):
            psycopg.Cursor(conn).execute("UPDATE public.s SET v = v")  # as another client of the same session


def test_the_author_can_switch_it_off_and_on(line: Line, installed: Database) -> None:
    line.sql("SELECT pgtrickle.protect_stream_table('s', false)")
    line.sql("UPDATE s SET v = 0")
    line.tick()
    assert line.rows("s") == [(1, 0), (2, 0)]
    line.sql("SELECT pgtrickle.protect_stream_table('s')")
    with pytest.raises(psycopg.errors.WrongObjectType):
        line.sql("UPDATE s SET v = 0")
    line.tick()
    line.equal("s")  # what was written meanwhile is gone
    before = line.refreshes("s")
    line.sql("SELECT pgtrickle.protect_stream_table('s')")  # nothing to do
    line.tick()
    assert line.refreshes("s") == before
    installed.superuser_sql(
        "DROP ROLE IF EXISTS nobody_else; CREATE ROLE nobody_else; GRANT USAGE ON SCHEMA pgtrickle TO nobody_else"
    )
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be the creator"):
            installed.superuser_sql("SET ROLE nobody_else; SELECT pgtrickle.protect_stream_table('s', false)")
        # Without the privilege to write, the setting helps nobody.
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            installed.superuser_sql("SET ROLE nobody_else; SET pgtrickle.applies = on; DELETE FROM s")
    finally:
        installed.superuser_sql("DROP OWNED BY nobody_else; DROP ROLE nobody_else")


@pytest.fixture
def target(pg_server: EmbeddedPostgres) -> Iterator[Database]:
    yield from empty_database(pg_server, "protected_copy")


def test_replication_and_restores_may_write(line: Line, installed: Database, target: Database, tmp_path: Path) -> None:
    installed.superuser_sql(
        "SET session_replication_role = replica; UPDATE s SET v = v; RESET session_replication_role"
    )
    dump = str(tmp_path / "whole.dump")
    run(installed.server, "pg_dump", "-Fc", "-f", dump, installed.name)
    run(installed.server, "pg_restore", "--exit-on-error", "-d", target.name, dump)
    assert target.superuser_sql("SELECT id, v FROM s ORDER BY 1") == [(1, 10), (2, 20)]
    with pytest.raises(psycopg.errors.WrongObjectType, match="cannot update stream table"):
        target.superuser_sql("UPDATE s SET v = 0")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refused:
        target.superuser_sql("DROP TABLE t")
    assert "stream table public.s" in (refused.value.diag.message_detail or "")
    run(installed.server, "pg_restore", "--exit-on-error", "-d", target.name, "--clean", dump)
    run(
        target.server,
        "pg_restore",
        "--exit-on-error",
        "-d",
        target.name,
        "--data-only",
        "--disable-triggers",
        "-t",
        "s",
        dump,
    )
    assert target.superuser_sql("SELECT count(*) FROM s") == [(4,)]


def test_dropping_a_source_names_its_readers(line: Line, installed: Database) -> None:
    line.sql("CREATE VIEW big AS SELECT id FROM t WHERE v > 10; CREATE TABLE u (id int, w int)")
    line.create("of_view", "SELECT id FROM big", mode="FULL")
    line.create("upon", "SELECT count(*) AS n FROM s", mode="FULL")
    line.create('"Odd ""one"', "SELECT id, w FROM u", mode="FULL")
    line.sql(
        "ALTER TABLE u ALTER w TYPE bigint; ALTER TABLE u RENAME w TO x; ALTER TABLE u RENAME TO used"
    )  # are not refused
    for drop, readers in [("TABLE t", ["s", "of_view"]), ("VIEW big", ["of_view"]), ("TABLE used", ['Odd "one'])]:
        with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refused:
            installed.superuser_sql(f"DROP {drop}")
        for reader in readers:
            quoted = reader.replace('"', '""')
            assert f'"stream table public.{quoted}"' in str(refused.value.diag.message_detail)
    noticed: list[str] = []
    line.conn.add_notice_handler(lambda diag: noticed.append(f"{diag.message_primary} {diag.message_detail or ''}"))
    line.sql("DROP TABLE t CASCADE")
    assert "stream table public.s" in "".join(noticed)
    line.tick()
    assert line.sql("SELECT status FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 's'") == [("ERROR",)]
    # created again, adopted, and guarded again
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (5, 50)")
    line.sql("SELECT pgtrickle.repair_stream_table('s')")
    line.tick()
    line.equal("s")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        line.sql("DROP TABLE t")
    line.sql("SELECT pgtrickle.drop_stream_table('s', true); DROP TABLE t")  # nobody reads it any more


def test_dropping_a_table_that_another_database_reads_names_it(
    line: Line, installed: Database, make_installed: Callable[[], Database]
) -> None:
    crm = make_installed()
    crm.sql("CREATE TABLE people (id int PRIMARY KEY, name text); CREATE TABLE orders (id int PRIMARY KEY)")
    people, orders = (f'"{crm.name}".public.{table}' for table in ("people", "orders"))
    line.create("names", f"SELECT id, name FROM {people}", mode="FULL")
    line.create("both", f"SELECT name, count(*) AS n FROM {people} JOIN {orders} USING (id) GROUP BY name", mode="FULL")
    line.tick()
    crm.sql("ALTER TABLE people RENAME TO persons; ALTER TABLE persons ALTER name TYPE varchar(9)")  # are not refused
    for table in ("persons", "orders"):
        with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refused:
            crm.superuser_sql(f"DROP TABLE {table}")
        assert f"in database {installed.name}@" in str(refused.value.diag.message_detail)
    # Positions are reported with each refresh, and the view stays the same.
    guards = "SELECT oid FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace AND relkind = 'v'"
    before = sorted(crm.sql(guards))
    crm.sql("INSERT INTO orders VALUES (1)")
    line.tick()
    assert sorted(crm.sql(guards)) == before
    # A detached reader holds nothing up, and is there again after its next refresh.
    crm.sql("SELECT pgtrickle.detach_reader(%s)", installed.name)
    assert crm.sql(guards) == []
    crm.sql("INSERT INTO orders VALUES (2)")
    line.tick()
    assert len(crm.sql(guards)) == len(before)
    with crm.connect() as conn:
        noticed: list[str] = []
        conn.add_notice_handler(lambda diag: noticed.append(f"{diag.message_primary} {diag.message_detail or ''}"))
        conn.execute("DROP TABLE orders CASCADE")
    assert f"in database {installed.name}@" in "".join(noticed)
    line.sql("SELECT pgtrickle.drop_stream_table('both'); SELECT pgtrickle.drop_stream_table('names')")
    line.tick()
    crm.sql("DROP TABLE persons")  # nobody reads it any more
