"""Writers wake a scheduler that waits: on a server without prepared transactions, as is the default."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import psycopg
import pytest

from pgtrickle.capture.install import ensure_capture
from pgtrickle.capture.trigger import WAKE_CHANNEL, WAKE_LOCK
from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.process.writer_signal import WriterSignal
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database, prepare_server
from tests.postgres.test_scheduling import Stage


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres.create(durable=False, settings={"max_notify_queue_pages": "64"}) as server:
        prepare_server(server)
        yield server


@pytest.fixture
def stage(server: EmbeddedPostgres) -> Iterator[Stage]:
    database = create_database(server, f"wake_{uuid.uuid4().hex[:8]}")
    with connect(database.dsn, role="install") as conn:
        install(conn)
    stage = Stage(database)
    yield stage
    stage.conn.close()
    database.close()


class Ear:
    """Listens as a scheduler does."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._conn = database.connect()
        self._conn.execute(f"LISTEN {WAKE_CHANNEL}")

    def heard(self) -> int:
        """Notifications of writers since the last call: those before the one that is sent here."""
        self._database.sql("SELECT pg_notify(%s, 'end')", WAKE_CHANNEL)
        for count, notification in enumerate(self._conn.notifies(timeout=120)):
            if notification.payload == "end":
                return count
        raise AssertionError("the last notification has not arrived")


def holds(signal: WriterSignal) -> bool:
    return signal.is_held


def test_a_transaction_notifies_a_waiting_scheduler_once_and_no_other(stage: Stage) -> None:
    stage.source("t")
    stage.source("u")
    ear = Ear(stage.database)
    stage.sql("INSERT INTO t VALUES (0, 0)")
    assert ear.heard() == 0, "nobody waits"
    waiting = stage.database.connect()
    waiting.execute("SELECT pg_advisory_lock(%s)", (WAKE_LOCK,))
    with stage.database.connect(autocommit=False) as writer:
        writer.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        with writer.transaction():
            writer.execute("UPDATE t SET v = 3")
        writer.execute("INSERT INTO u VALUES (1, 1)")
        writer.execute("TRUNCATE u")
        assert ear.heard() == 0, "the changes are not visible yet"
        writer.commit()
        assert ear.heard() == 1
        writer.execute("DELETE FROM t")
        writer.rollback()
        assert ear.heard() == 0
    waiting.execute("SELECT pg_advisory_unlock(%s)", (WAKE_LOCK,))
    stage.sql("INSERT INTO u VALUES (4, 4)")
    assert ear.heard() == 0


def test_writers_neither_fail_nor_notify_when_the_queue_of_notifications_is_full(stage: Stage) -> None:
    stage.source("t")
    waiting = stage.database.connect()
    waiting.execute("SELECT pg_advisory_lock(%s)", (WAKE_LOCK,))
    with stage.database.connect(autocommit=False) as idle:
        idle.execute("LISTEN anything")
        idle.commit()
        idle.execute("SELECT")  # an open transaction receives nothing, and the queue keeps everything
        filling = stage.database.connect()
        with pytest.raises(psycopg.OperationalError, match="too many notifications"):
            filling.execute(
                "DO $$ BEGIN FOR i IN 1..1000 LOOP PERFORM pg_notify('anything', i || repeat('x', 7000)); COMMIT; "
                "END LOOP; END $$"
            )
        stage.sql("INSERT INTO t VALUES (1, 1)")
        assert stage.sql("SELECT pg_notification_queue_usage() > 0.9") == [(True,)]
    deadline = time.monotonic() + 60
    while stage.sql("SELECT pg_notification_queue_usage() > 0") == [(True,)]:
        assert time.monotonic() < deadline
    assert stage.sql("SELECT * FROM t") == [(1, 1)]


def test_writers_can_prepare_transactions_where_the_server_permits_it(installed: Database) -> None:
    """Also while somebody holds the lock that asks for notifications, which forbid PREPARE TRANSACTION."""
    installed.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    installed.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT v FROM t', 'calculated', 'IMMEDIATE')")
    (relid,) = installed.sql("SELECT 't'::regclass::oid::int8")[0]
    with connect(installed.dsn, role="capture", autocommit=True) as conn:
        ensure_capture(conn, relid, [1, 2])
    waiting = installed.connect()
    waiting.execute("SELECT pg_advisory_lock(%s)", (WAKE_LOCK,))
    writer = installed.connect(autocommit=False)
    writer.execute("INSERT INTO t VALUES (1, 1)")
    name = f"wake_{uuid.uuid4().hex}"
    writer.execute(f"PREPARE TRANSACTION '{name}'")
    writer.rollback()
    installed.sql(f"COMMIT PREPARED '{name}'")
    assert installed.sql(f"SELECT count(*) FROM pgtrickle_changes.changes_{relid}") == [(1,)]


def test_the_lock_is_refused_while_a_writer_is_open_that_does_not_notify(stage: Stage) -> None:
    stage.source("t")
    stage.table("s", "SELECT v FROM t")
    stage.settle()
    signal = WriterSignal(stage.conn)
    signal.acquire(stage.scheduling)
    assert holds(signal)
    signal.release()
    early, late = stage.database.connect(autocommit=False), stage.database.connect(autocommit=False)
    early.execute("INSERT INTO t VALUES (1, 1)")
    signal.acquire(stage.scheduling)
    assert not holds(signal), "it would not be notified of the commit"
    left = signal.seconds_left(stage.scheduling)
    assert left < 1, "so it polls"
    stage.tick()
    signal.acquire(stage.scheduling)
    later = signal.seconds_left(stage.scheduling)
    assert later > left, "later while it finds nothing"
    signal.note_changes()
    assert signal.seconds_left(stage.scheduling) < later
    early.commit()
    signal.acquire(stage.scheduling)
    assert holds(signal)
    ear = Ear(stage.database)
    late.execute("INSERT INTO t VALUES (2, 2)")
    late.commit()
    assert ear.heard() == 1
    assert stage.tick() != []


def test_writers_are_asked_only_while_a_change_would_make_a_table_due(stage: Stage) -> None:
    stage.source("t")
    stage.source("u")
    hourly = stage.table("hourly", "SELECT v FROM t", schedule="1h")
    stage.table("nightly", "SELECT v FROM u", schedule="0 3 * * *")
    long_ago = "UPDATE pgtrickle.pgt_stream_tables SET last_refresh_at = clock_timestamp() - interval '2 days'"
    stage.sql(long_ago)
    stage.settle()
    signal = WriterSignal(stage.conn)
    signal.acquire(stage.scheduling)
    assert not holds(signal)
    assert 0 < signal.seconds_left(stage.scheduling) <= 3600
    stage.sql(long_ago)
    stage.sql("SELECT pgtrickle._wake('test', %s)", hourly)
    assert stage.tick() == []
    signal.acquire(stage.scheduling)
    assert holds(signal)
    ear = Ear(stage.database)
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert ear.heard() == 1
    assert stage.tick() == [(hourly,)]
    assert signal.seconds_left(stage.scheduling) > 3600, "it is being refreshed: nothing else waits for a change"
    assert not holds(signal)
    stage.sql("INSERT INTO t VALUES (2, 2)")
    assert ear.heard() == 0


def test_nobody_is_asked_where_event_driven_wake_is_off(stage: Stage) -> None:
    stage.flags["event_driven_wake"] = False
    stage.source("t")
    stage.table("s", "SELECT v FROM t")
    stage.settle()
    signal = WriterSignal(stage.conn)
    signal.acquire(stage.scheduling)
    assert not holds(signal)
    assert signal.seconds_left(stage.scheduling) == float("inf")


def test_a_scheduler_polls_where_transactions_can_be_prepared(installed: Database) -> None:
    stage = Stage(installed)
    stage.source("t")
    stage.table("s", "SELECT v FROM t")
    stage.settle()
    signal = WriterSignal(stage.conn)
    signal.acquire(stage.scheduling)
    assert not holds(signal)
    assert signal.seconds_left(stage.scheduling) < 1
    stage.conn.close()


def test_no_commit_is_missed_by_a_scheduler_that_waits_for_notifications_only(stage: Stage) -> None:
    """Four writers commit a row each, at random moments, when all rows before were found."""
    rounds, debounce = 100, 0.002
    found: dict[int, threading.Event] = {}
    for number in range(4):
        stage.source(f"t{number}")
        found[stage.table(f"s{number}", f"SELECT v FROM t{number}", mode="IMMEDIATE")] = threading.Event()
    stage.settle()
    signal, together = WriterSignal(stage.conn), threading.Barrier(4)

    def write(number: int, seen: threading.Event) -> list[int]:
        random, missed = Random(number), []
        with psycopg.connect(stage.database.dsn, autocommit=True) as conn:
            for row in range(rounds):
                together.wait(600)
                time.sleep(random.uniform(0, 3 * debounce))
                seen.clear()
                with conn.transaction():
                    conn.execute(f"INSERT INTO t{number} VALUES (%s, 0)", (row,))
                    time.sleep(random.uniform(0, 3 * debounce))
                if not seen.wait(300):
                    missed.append(row)
                    conn.execute(f"NOTIFY {WAKE_CHANNEL}")
        return missed

    waits = 0
    with ThreadPoolExecutor() as pool:
        writing = [pool.submit(write, number, seen) for number, seen in enumerate(found.values())]
        while not all(each.done() for each in writing):
            signal.acquire(stage.scheduling)
            refreshed = [pgt_id for unit in stage.tick() for pgt_id in unit]
            if refreshed:
                stage.link.finish()
                for pgt_id in refreshed:
                    found[pgt_id].set()
            elif holds(signal):
                waits += 1
                while not list(stage.conn.notifies(timeout=0.5, stop_after=1)):
                    if all(each.done() for each in writing):
                        break
                signal.release()
                time.sleep(debounce)
    assert [each.result() for each in writing] == [[]] * 4
    assert waits > rounds / 10, "it hardly ever waited"
