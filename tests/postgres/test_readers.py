"""Mirrors in other databases: buffers wait for them, they are counted and reported, and can be detached."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle.capture.install import collect_garbage, ensure_capture
from pgtrickle.capture.trim import trim, trim_all
from pgtrickle.db import Connection, connect
from tests.conftest import Database
from tests.postgres.rows import capture, create, loaded
from tests.postgres.test_cli_commands import pgtrickle

MakeRole = Callable[[Database], psycopg.Connection[Any]]


@pytest.fixture
def conn(db: Database) -> Iterator[Connection]:
    with connect(db.dsn, role="test", autocommit=True) as connection:
        yield connection


@pytest.fixture
def relid(db: Database) -> int:
    return capture(db)


def reads(
    db: Database, relid: int, database: str = "far", *, mirror: int = 1, key: str = "1/1", server: str = "",
    columns: str = "{1}", is_loaded: bool = True, silent: str = "0 s",
) -> None:  # fmt: skip
    """A mirror of that database has seen everything so far, or nothing yet; it said so some time ago."""
    db.sql(
        "INSERT INTO pgtrickle.pgt_readers (reader_key, mirror_id, reader_server, reader_database, source_relid, "
        "columns_used, snapshot, updated_at) VALUES (%s, %s, %s, %s, %s, %s, CASE WHEN %s THEN pg_current_snapshot() "
        "END, clock_timestamp() - %s::interval) ON CONFLICT (reader_key, mirror_id) "
        "DO UPDATE SET snapshot = excluded.snapshot, updated_at = excluded.updated_at",
        key, mirror, server, database, relid, columns, is_loaded, silent,
    )  # fmt: skip


def left(db: Database, relid: int) -> list[int]:
    return [a for (a,) in db.sql(f"SELECT c1 FROM pgtrickle_changes.changes_{relid} ORDER BY 1")]


# -- trimming


def test_nothing_goes_before_the_slowest_database_has_it(db: Database, conn: Connection, relid: int) -> None:
    loaded(db, create(db))
    reads(db, relid, "one", key="1/1")
    reads(db, relid, "two", key="1/2", is_loaded=False)
    db.sql("INSERT INTO t VALUES (1)")
    reads(db, relid, "one", key="1/1")
    db.sql("UPDATE pgtrickle.pgt_stream_tables SET frontier = jsonb_build_object(pgtrickle._origin(), "
           "jsonb_build_object('snapshot', pg_current_snapshot()::text))")  # fmt: skip
    assert trim(conn, relid) == 0  # two is about to load
    reads(db, relid, "two", key="1/2")
    db.sql("INSERT INTO t VALUES (2)")
    reads(db, relid, "one", key="1/1")
    loaded(db, 1)
    assert trim(conn, relid) == 1
    assert left(db, relid) == [2]
    reads(db, relid, "two", key="1/2")
    assert trim_all(conn) == {relid: 1}


def test_a_transaction_that_was_open_at_the_cut_of_a_mirror_is_kept(db: Database, conn: Connection, relid: int) -> None:
    writer = db.connect(autocommit=False)
    writer.execute("INSERT INTO t VALUES (1)")
    reads(db, relid)
    writer.commit()
    assert trim(conn, relid) == 0


def test_capture_that_only_another_database_needs_stays(db: Database, conn: Connection, relid: int) -> None:
    reads(db, relid)
    assert collect_garbage(conn) == []
    db.sql("SELECT pgtrickle.detach_reader('far')")
    assert collect_garbage(conn) == [relid]


def test_capture_that_is_made_anew_has_the_columns_of_mirrors(db: Database, conn: Connection, relid: int) -> None:
    reads(db, relid, columns="{2}")
    db.sql(f"DROP TABLE pgtrickle_changes.changes_{relid}; DELETE FROM pgtrickle.pgt_sources")
    ensure_capture(conn, relid, [1])
    assert db.sql("SELECT captured_columns FROM pgtrickle.pgt_sources") == [([1, 2],)]


# -- numbers


def test_change_buffer_sizes_have_a_row_for_each_mirror(db: Database, relid: int) -> None:
    loaded(db, create(db))
    reads(db, relid, "far", mirror=7)
    db.sql("INSERT INTO t VALUES (1), (2)")
    reads(db, relid, "Odd Db", mirror=8, server="host:5433", key="2/1")
    reads(db, relid, "far", mirror=9, is_loaded=False)
    db.sql("INSERT INTO t VALUES (3)")
    found = db.sql(
        "SELECT stream_table, source_table, source_oid::int8, cdc_mode, pending_rows, row_count, buffer_bytes > 8191 "
        "FROM pgtrickle.change_buffer_sizes()"
    )
    assert found == [
        (name, "public.t", relid, "trigger", pending, 3, True)
        for name, pending in (
            ("public.s", 3),
            ("far: pgtrickle_changes.mirror_7", 3),
            ("far: pgtrickle_changes.mirror_9", 3),
            ('host:5433/"Odd Db": pgtrickle_changes.mirror_8', 1),
        )
    ]


def test_a_mirror_far_behind_shows_in_the_health_of_its_source(db: Database, relid: int) -> None:
    reads(db, relid)
    db.superuser_sql(f"ALTER DATABASE {db.name} SET pg_trickle.max_buffer_rows = 2")
    db.sql("INSERT INTO t VALUES (1), (2), (3)")
    assert db.sql("SELECT alert, pending_rows FROM pgtrickle.check_cdc_health()") == [
        ("3 changes are pending, more than max_buffer_rows (2): the next refresh is FULL", 3)
    ]


def test_readers_lists_mirrors_of_other_databases(db: Database, relid: int) -> None:
    reads(db, relid, silent="2 hours")
    reads(db, relid, "near", key="1/2", silent="50 minutes")
    db.sql("INSERT INTO t VALUES (1)")
    reads(db, relid, "read all", key="1/3", silent="2 days")
    reads(db, 4711, "source gone", key="1/4", is_loaded=False, silent="2 days")
    found = db.sql(
        "SELECT reader, server, database, source_table, loaded, pending_rows, late, mirror_id, reader_key "
        "FROM pgtrickle.readers()"
    )
    assert found == [
        ("far: pgtrickle_changes.mirror_1", "", "far", "public.t", True, 1, True, 1, "1/1"),
        ("near: pgtrickle_changes.mirror_1", "", "near", "public.t", True, 1, False, 1, "1/2"),
        ('"read all": pgtrickle_changes.mirror_1', "", "read all", "public.t", True, 0, False, 1, "1/3"),
        ('"source gone": pgtrickle_changes.mirror_1', "", "source gone", "4711", False, 0, False, 1, "1/4"),
    ]


def test_names_of_other_databases_are_for_who_may_read_the_source(
    db: Database, relid: int, make_role: MakeRole
) -> None:
    reads(db, relid, "secret4711", server="secret4711", silent="2 hours")
    db.sql("INSERT INTO t VALUES (1)")
    other = make_role(db)
    for call in ("readers()", "change_buffer_sizes()", "health_check()", "_readers"):
        found = other.execute(f"SELECT * FROM pgtrickle.{call}").fetchall()
        assert found
        assert "secret4711" not in str(found)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        other.execute("SELECT reader_database FROM pgtrickle.pgt_readers")
    # nor how much is written to it
    for call in ("readers()", "change_buffer_sizes()", "check_cdc_health()"):
        found = other.execute(f"SELECT DISTINCT pending_rows, buffer_bytes FROM pgtrickle.{call}").fetchall()
        assert found == [(None, None)], call
    assert other.execute("SELECT alert FROM pgtrickle.check_cdc_health()").fetchall() == [(None,)]
    db.sql(f"GRANT SELECT ON t TO {other.info.user}")
    assert other.execute("SELECT pending_rows FROM pgtrickle.readers()").fetchall() == [(1,)]
    assert None not in {row[0] for row in other.execute("SELECT row_count FROM pgtrickle.change_buffer_sizes()")}
    assert other.execute("SELECT server, database FROM pgtrickle.readers()").fetchall() == [
        ("secret4711", "secret4711")
    ]


# -- gone for good


def test_a_silent_reader_is_reported_until_it_is_detached(db: Database, conn: Connection, relid: int) -> None:
    def health() -> tuple[str, str]:
        ((severity, detail),) = db.sql(
            "SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = 'readers'"
        )
        return severity, detail

    reads(db, relid, silent="3 days 2 hours 10 minutes")
    assert health() == ("OK", "no reader in another database blocks trimming")
    db.sql("INSERT INTO t VALUES (1), (2)")
    assert health() == (
        "WARN",
        "far: pgtrickle_changes.mirror_1 has not read public.t for 3 days 02:00:00: 2 changes are kept for it, "
        "the buffer has 8192 bytes (hint: if it no longer exists: pgtrickle.detach_reader)",
    )
    found = json.loads(pgtrickle("doctor", "--server", db.dsn, "--json").stdout)["findings"]
    (finding,) = [f for f in found if f["what"] == "readers"]
    assert finding["ok"] is False
    assert "far: pgtrickle_changes.mirror_1 has not read public.t since" in finding["detail"]
    assert "2 changes are kept for it (8192 bytes)" in finding["detail"]
    assert trim(conn, relid) == 0
    done = pgtrickle("detach", "--server", db.dsn, "far")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 readers of database far were detached")
    assert trim(conn, relid) == 2
    assert health()[0] == "OK"
    again = pgtrickle("detach", "--server", db.dsn, "far")
    assert again.returncode == 1
    assert "no such reader of database far" in again.stderr


def test_detach_takes_one_database_and_one_mirror(db: Database, relid: int) -> None:
    reads(db, relid, mirror=1)
    reads(db, relid, mirror=2)
    reads(db, relid, "other", key="1/2")
    assert db.sql("SELECT pgtrickle.detach_reader('far', mirror_id => 2)") == [(1,)]
    assert db.sql("SELECT reader, mirror_id FROM pgtrickle.readers()") == [
        ("far: pgtrickle_changes.mirror_1", 1),
        ("other: pgtrickle_changes.mirror_1", 1),
    ]


def test_detach_does_not_guess_between_databases_of_one_name(db: Database, relid: int) -> None:
    reads(db, relid, key="1/1")
    reads(db, relid, key="1/2")  # dropped and made again
    reads(db, relid, key="2/1", server="host:5433")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="several databases that have or had the name far"):
        db.sql("SELECT pgtrickle.detach_reader('far')")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        db.sql("SELECT pgtrickle.detach_reader('far', '')")
    assert db.sql("SELECT pgtrickle.detach_reader('far', 'host:5433')") == [(1,)]
    assert db.sql("SELECT pgtrickle.detach_reader('far', reader_key => '1/1')") == [(1,)]
    assert db.sql("SELECT reader_key FROM pgtrickle.readers()") == [("1/2",)]


def test_detach_is_for_the_role_that_installed(db: Database, relid: int, make_role: MakeRole) -> None:
    reads(db, relid)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="only the role that installed"):
        make_role(db).execute("SELECT pgtrickle.detach_reader('far')")


# -- stream tables that other databases read


def test_a_stream_table_that_another_database_reads_is_dropped_by_cascade_only(db: Database) -> None:
    create(db)
    ((relid,),) = db.sql("SELECT 's'::regclass::oid::int8")
    reads(db, relid)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=r"database far reads public\.s"):
        db.sql("SELECT pgtrickle.drop_stream_table('s')")
    db.sql("SELECT pgtrickle.drop_stream_table('s', true)")
    assert db.sql("SELECT FROM pgtrickle.pgt_readers") == []


def test_columns_that_another_database_reads_are_not_altered(db: Database) -> None:
    create(db)
    ((relid,),) = db.sql("SELECT 's'::regclass::oid::int8")
    reads(db, relid)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="which database far reads"):
        db.sql("SELECT pgtrickle.alter_stream_table('s', query => 'SELECT b FROM t')")
    db.sql("SELECT pgtrickle.alter_stream_table('s', query => 'SELECT a FROM t WHERE b > 0')")
