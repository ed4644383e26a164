"""Every committed change falls in exactly one window; trimming never takes what somebody needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pgtrickle.capture.install import ensure_capture
from pgtrickle.capture.trim import hollow_buffers, index_long_buffers, release_space, trim, trim_all
from pgtrickle.db import Connection, connect
from pgtrickle.model.flow import Cut, Pending, Window
from pgtrickle.model.identifiers import buffer_name
from pgtrickle.refresh.pending import read_pending
from tests.conftest import Database

# The definition of a window, which `Window.predicate` has to agree with.
VISIBLE = "pg_visible_in_snapshot(xid, '{upto}') AND NOT pg_visible_in_snapshot(xid, '{since}')"


class Reader:
    """Takes cuts and collects the windows between them."""

    def __init__(self, database: Database, relid: int) -> None:
        self.conn = connect(database.dsn, role="test", autocommit=False)
        self.relid = relid
        self.cut = self._now()
        self.conn.rollback()
        self.seen: list[int] = []

    def _now(self) -> Cut:
        self.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        row = self.conn.execute("SELECT pg_current_snapshot()::text").fetchone()
        assert row is not None
        return Cut.parse(row[0])

    def tick(self) -> list[int]:
        cut = self._now()
        window = Window(self.cut, cut)
        found = self._values(window.predicate())
        same = self._values(VISIBLE.format(since=self.cut, upto=cut))
        wanted = (self.relid, window, None)
        pending, _ = read_pending(self.conn, [wanted])
        self.conn.rollback()
        assert found == same
        count = len(found)
        assert pending == {wanted: Pending(count, truncated=False, is_seen=not count, captured=count)}
        self.cut = cut
        self.seen += found
        return found

    def _values(self, condition: str) -> list[int]:
        rows = self.conn.execute(f"SELECT c1 FROM {buffer_name(self.relid)} WHERE {condition} ORDER BY 1").fetchall()
        return [value for (value,) in rows]


@pytest.fixture
def conn(installed: Database) -> Iterator[Connection]:
    with connect(installed.dsn, role="test", autocommit=True) as connection:
        connection.execute("SET search_path = public")
        connection.execute("CREATE TABLE t (a int)")
        yield connection


@pytest.fixture
def relid(conn: Connection) -> int:
    row = conn.execute("SELECT 't'::regclass::oid::int8").fetchone()
    assert row is not None
    ensure_capture(conn, row[0], [1])
    return int(row[0])


@pytest.fixture
def reader(installed: Database, relid: int) -> Iterator[Reader]:
    found = Reader(installed, relid)
    yield found
    found.conn.close()


def test_read_committed_writer_idle_across_ticks(installed: Database, conn: Connection, reader: Reader) -> None:
    writer = installed.connect(autocommit=False)
    writer.execute("INSERT INTO t VALUES (1)")
    for value in range(2, 22):
        conn.execute("INSERT INTO t VALUES (%s)", [value])
        assert reader.tick() == [value]
    writer.commit()
    assert reader.tick() == [1]
    assert reader.tick() == []
    assert sorted(reader.seen) == list(range(1, 22))


def test_repeatable_read_writer_begun_between_ticks(installed: Database, conn: Connection, reader: Reader) -> None:
    old, writer = installed.connect(autocommit=False), installed.connect(autocommit=False)
    old.execute("INSERT INTO t VALUES (1)")
    reader.tick()
    writer.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    writer.execute("SELECT count(*) FROM t")
    old.commit()
    writer.execute("INSERT INTO t VALUES (2)")
    assert reader.tick() == [1]
    conn.execute("INSERT INTO t VALUES (3)")
    assert reader.tick() == [3]
    writer.commit()
    assert reader.tick() == [2]
    assert reader.tick() == []


def test_prepared_transaction_across_ticks(installed: Database, conn: Connection, reader: Reader) -> None:
    writer = installed.connect(autocommit=False)
    writer.execute("INSERT INTO t VALUES (1)")
    writer.execute("PREPARE TRANSACTION 'capture_window'")
    writer.rollback()
    conn.execute("INSERT INTO t VALUES (2)")
    assert reader.tick() == [2]
    conn.execute("COMMIT PREPARED 'capture_window'")
    assert reader.tick() == [1]
    assert reader.tick() == []


def test_savepoint_with_partial_rollback(installed: Database, conn: Connection, reader: Reader) -> None:
    writer = installed.connect(autocommit=False)
    writer.execute("INSERT INTO t VALUES (1)")
    writer.execute("SAVEPOINT s")
    writer.execute("INSERT INTO t VALUES (2)")
    assert reader.tick() == []
    writer.execute("ROLLBACK TO s")
    writer.execute("INSERT INTO t VALUES (3)")
    conn.execute("INSERT INTO t VALUES (4)")
    assert reader.tick() == [4]
    writer.commit()
    assert reader.tick() == [1, 3]
    assert reader.tick() == []


def _create_readers(conn: Connection, count: int) -> None:
    for i in range(count):
        conn.execute("SELECT pgtrickle.create_stream_table(%s, 'SELECT a FROM t')", [f"s{i}"])


def _advance(conn: Connection, name: str) -> None:
    conn.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE', is_populated = true, frontier = "
        "jsonb_build_object(pgtrickle._origin(), jsonb_build_object('snapshot', "
        "pg_current_snapshot()::text)) WHERE pgt_name = %s",
        [name],
    )


def _left(conn: Connection, relid: int) -> int:
    row = conn.execute(f"SELECT count(*) FROM pgtrickle_changes.changes_{relid}").fetchone()
    assert row is not None
    return int(row[0])


def test_trim_waits_for_the_slowest_reader(conn: Connection, relid: int) -> None:
    _create_readers(conn, 2)
    conn.execute("INSERT INTO t SELECT generate_series(1, 10)")
    assert trim(conn, relid) == 0  # both may be loading
    _advance(conn, "s0")
    assert trim(conn, relid) == 0
    _advance(conn, "s1")
    conn.execute("INSERT INTO t SELECT generate_series(1, 5)")
    _advance(conn, "s0")
    assert trim(conn, relid, batch_rows=3) == 10
    assert _left(conn, relid) == 5
    _advance(conn, "s1")
    assert trim_all(conn) == {relid: 5}
    assert trim_all(conn) == {}


def test_trim_keeps_rows_of_transactions_still_open_at_the_cut(
    installed: Database, conn: Connection, relid: int
) -> None:
    _create_readers(conn, 1)
    writer = installed.connect(autocommit=False)
    writer.execute("INSERT INTO t VALUES (1)")
    conn.execute("INSERT INTO t VALUES (2)")
    _advance(conn, "s0")
    writer.commit()
    trim(conn, relid)
    assert conn.execute(f"SELECT c1 FROM pgtrickle_changes.changes_{relid} WHERE c1 = 1").fetchall() == [(1,)]


def test_trim_passes_a_stopped_unloaded_reader_and_fences_it(conn: Connection, relid: int) -> None:
    _create_readers(conn, 2)
    conn.execute("INSERT INTO t VALUES (1)")
    _advance(conn, "s0")
    conn.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ERROR' WHERE pgt_name = 's1'")
    assert trim(conn, relid) == 1
    assert conn.execute("SELECT epoch FROM pgtrickle.pgt_stream_tables ORDER BY pgt_name").fetchall() == [(0,), (1,)]


def test_change_buffer_sizes_are_exact_per_reader(conn: Connection, relid: int) -> None:
    _create_readers(conn, 2)
    conn.execute("INSERT INTO t SELECT generate_series(1, 4)")
    _advance(conn, "s0")
    conn.execute("INSERT INTO t VALUES (5)")
    rows = conn.execute(
        "SELECT stream_table, source_table, source_oid::int8, pending_rows, row_count FROM "
        "pgtrickle.change_buffer_sizes()"
    ).fetchall()
    assert rows == [("public.s0", "public.t", relid, 1, 5), ("public.s1", "public.t", relid, 5, 5)]


def test_long_buffer_gets_an_index_and_only_once(conn: Connection, relid: int) -> None:
    conn.execute("INSERT INTO t SELECT generate_series(1, 1000)")
    assert index_long_buffers(conn) == []
    assert index_long_buffers(conn, long_bytes=1000) == [relid]
    assert index_long_buffers(conn, long_bytes=1000) == []


def test_large_buffer_that_is_empty_releases_its_space(conn: Connection, relid: int, installed: Database) -> None:
    _create_readers(conn, 1)
    conn.execute("INSERT INTO t SELECT generate_series(1, 30000)")
    assert index_long_buffers(conn, long_bytes=100_000) == [relid]
    assert hollow_buffers(conn, long_bytes=100_000) == []  # it is in use
    assert release_space(conn, long_bytes=100_000) == []
    _advance(conn, "s0")
    reader = installed.connect(autocommit=False)
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    before = reader.execute(f"SELECT count(*) FROM {buffer_name(relid)}").fetchone()
    assert trim(conn, relid) == 30000
    assert hollow_buffers(conn, long_bytes=100_000) == [relid]
    conn.execute("SET lock_timeout = '100ms'")
    assert release_space(conn, long_bytes=100_000) == []  # a snapshot still sees the rows
    conn.execute("RESET lock_timeout")
    assert reader.execute(f"SELECT count(*) FROM {buffer_name(relid)}").fetchone() == before == (30000,)
    reader.rollback()
    assert release_space(conn, long_bytes=100_000) == [relid]
    assert conn.execute(f"SELECT pg_total_relation_size('{buffer_name(relid)}') < 100000").fetchone() == (True,)
    conn.execute("INSERT INTO t VALUES (1)")
    assert conn.execute(f"SELECT count(*) FROM {buffer_name(relid)}").fetchone() == (1,)


def test_trigger_inventory_notices_what_is_missing(conn: Connection, relid: int) -> None:
    def broken() -> list[tuple[Any, ...]]:
        return conn.execute(
            "SELECT trigger_type, present, enabled FROM pgtrickle.trigger_inventory() WHERE NOT "
            "(present AND enabled) ORDER BY 1"
        ).fetchall()

    assert broken() == []
    conn.execute(f"DROP TRIGGER pgtrickle_{relid}_d ON t; ALTER TABLE t DISABLE TRIGGER pgtrickle_{relid}_i")
    assert broken() == [("DELETE", False, False), ("INSERT", True, False)]
    assert ensure_capture(conn, relid, [])
    assert broken() == []


def test_frontier_key_is_this_database(conn: Connection) -> None:
    key = conn.execute("SELECT pgtrickle._origin()").fetchone()
    row = conn.execute(
        "SELECT system_identifier::text || '/' || (SELECT oid FROM pg_database WHERE datname = "
        "current_database()) FROM pg_control_system()"
    ).fetchone()
    assert key == row
