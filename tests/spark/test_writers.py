"""Ways to write to sources, and what happens beside them. After each the tables equal their queries, without help.

The other cases of a fault test suite: all kinds of writers beside DDL, TRUNCATE and prepared transactions in
`tests/postgres/test_ddl_under_load.py`; savepoints, PREPARE TRANSACTION and long transactions across refreshes in
`tests/spark/test_cuts.py` and `tests/postgres/test_capture_windows.py`; MERGE, ON CONFLICT and TRUNCATE in
`tests/postgres/test_capture_writes.py` and `tests/spark/test_races.py`; workers of logical replication in
`tests/postgres/test_apply_workers.py`; locks, lost sessions and bad rows in `tests/postgres/test_failures.py` and
`tests/spark/test_faults.py`; a crash of the server in each phase of a refresh in
`tests/postgres/test_restart_in_phases.py`; full disks in `tests/fleet/test_disk_full.py`; kills and restarts of all
processes in `tests/fleet/test_kill.py`, `test_restart.py` and `test_hung.py`; a promoted standby in
`tests/fleet/test_servers.py` and `tests/postgres/test_restore.py`; restores in `test_restore.py` and
`tests/postgres/test_origin_restored.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from pgtrickle.db.install import install
from pgtrickle.errors import TransientError
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database, prepare_server
from tests.line import Line

TABLES = """
CREATE TABLE account (id int PRIMARY KEY, region int NOT NULL, balance int NOT NULL);
CREATE TABLE entry (id int, region int, account int REFERENCES account DEFERRABLE INITIALLY DEFERRED, amount int)
PARTITION BY LIST (region);
CREATE TABLE entry_0 PARTITION OF entry FOR VALUES IN (0);
CREATE TABLE entry_1 PARTITION OF entry FOR VALUES IN (1);
CREATE TABLE entry_2 PARTITION OF entry DEFAULT;
INSERT INTO account SELECT i, i % 3, 100 FROM generate_series(1, 30) AS i;
INSERT INTO entry SELECT i, i % 4, 1 + i % 30, i FROM generate_series(1, 90) AS i
"""
QUERIES = {
    "sums": "SELECT a.region, sum(e.amount) AS total, count(*) AS n FROM account AS a JOIN entry AS e "
    "ON e.account = a.id GROUP BY a.region",
    "parts": "SELECT region, count(*) AS n, max(amount) AS most FROM entry GROUP BY region",
    "lines_": "SELECT e.id, e.region, a.balance FROM entry AS e LEFT JOIN account AS a ON a.id = e.account",
}


@pytest.fixture
def bank(line: Line) -> Line:
    line.sql(TABLES)
    for name, query in QUERIES.items():
        line.create(name, query, mode="DIFFERENTIAL")
    return line


def right(line: Line) -> None:
    line.tick()
    for name in QUERIES:
        line.equal(name)
    assert line.sql("SELECT DISTINCT status FROM pgtrickle.pgt_stream_tables") == [("ACTIVE",)]


def test_rows_that_move_between_partitions(bank: Line) -> None:
    bank.sql("UPDATE entry SET region = (region + 1) % 5 WHERE id % 7 = 0")
    right(bank)
    bank.sql("BEGIN; UPDATE entry SET region = 1; SAVEPOINT a; UPDATE entry SET region = 2; ROLLBACK TO a; COMMIT")
    right(bank)
    bank.sql("UPDATE entry_1 SET amount = -amount WHERE id < 20; DELETE FROM entry_1 WHERE id > 80")
    right(bank)


def test_copy_and_deferred_constraints(bank: Line, installed: Database) -> None:
    with installed.connect(autocommit=False) as writer:
        with writer.cursor().copy("COPY entry FROM STDIN") as copy:
            for i in range(200, 260):
                copy.write_row((i, i % 3, 1000 + i, i))
        bank.tick()  # not committed, and its accounts do not exist yet
        with writer.cursor().copy("COPY account FROM STDIN") as copy:
            for i in range(200, 260):
                copy.write_row((1000 + i, i % 3, 5))
        writer.commit()
    right(bank)
    with installed.connect(autocommit=False) as writer:
        writer.execute("INSERT INTO entry VALUES (300, 0, 9999, 1)")
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            writer.commit()
    bank.sql("INSERT INTO account VALUES (50, 0, 1)")
    bank.tick()
    for name in QUERIES:
        bank.equal(name)


def test_serializable_transactions_do_not_fail_because_of_us(bank: Line, installed: Database) -> None:
    one, two = installed.connect(autocommit=False), installed.connect(autocommit=False)
    for session, account in ((one, 1), (two, 2)):
        session.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        session.execute("SELECT balance FROM account WHERE id = %s", (account,))
    for session, account in ((one, 1), (two, 2)):
        session.execute("UPDATE account SET balance = balance + 1 WHERE id = %s", (account,))
        bank.tick()
        session.execute("INSERT INTO entry VALUES (400 + %s, 0, %s, 7)", (account, account))
    one.commit()
    bank.tick()
    two.commit()
    right(bank)


@pytest.mark.soak
def test_deadlock_with_the_users_ddl(bank: Line, installed: Database) -> None:
    """The refresh has read the sources and wants to write; the transaction has locked the table and wants a source."""
    done: list[str] = []

    def migrate() -> None:
        for _ in range(20):
            try:
                with installed.connect(autocommit=False) as session:
                    session.execute("LOCK TABLE sums, lines_ IN SHARE MODE")
                    time.sleep(0.3)
                    session.execute("ALTER TABLE account ADD COLUMN IF NOT EXISTS note text")
                    session.commit()
                    done.append("migrated")
                    return
            except psycopg.errors.DeadlockDetected:
                continue

    thread = threading.Thread(target=migrate)
    thread.start()
    while thread.is_alive():
        bank.sql("UPDATE account SET balance = balance + 1 WHERE id % 3 = 0")
        with suppress(TransientError):
            bank.tick()
    thread.join()
    assert done == ["migrated"]
    bank.sql("UPDATE account SET balance = balance + 1 WHERE id = 3")
    for _ in range(3):
        time.sleep(1.1)  # a failed refresh is tried again after a second
        bank.tick()
    for name in QUERIES:
        bank.equal(name)
    assert bank.sql("SELECT DISTINCT status FROM pgtrickle.pgt_stream_tables") == [("ACTIVE",)]


@pytest.fixture
def crowded() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres.create(durable=False, settings={"max_connections": "20"}) as server:
        prepare_server(server)
        yield server


def _one_more(database: Database, others: list[psycopg.Connection[Any]]) -> bool:
    try:
        others.append(psycopg.connect(database.dsn))
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.soak
def test_server_without_a_free_connection(crowded: EmbeddedPostgres, make_line: Callable[..., Line]) -> None:
    database = create_database(crowded, "bank")
    with psycopg.connect(database.dsn, autocommit=True) as conn:
        install(conn)
    line = make_line(database)
    line.sql(TABLES)
    for name, query in QUERIES.items():
        line.create(name, query, mode="DIFFERENTIAL")
    line.sql("UPDATE account SET balance = 7 WHERE id = 1")
    with psycopg.connect(crowded.dsn(), autocommit=True) as dba:
        # Its sessions are lost, and others take their places.
        dba.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name ~ '^pgtrickle/(reader|writer|pipeline)'"
        )
        others: list[psycopg.Connection[Any]] = []
        while _one_more(database, others):
            pass
        for _ in range(2):
            with suppress(TransientError):
                line.tick()
        for other in others:
            other.close()
    assert line.sql("SELECT DISTINCT status FROM pgtrickle.pgt_stream_tables") == [("ACTIVE",)]
    for _ in range(5):
        time.sleep(1.1)
        with suppress(TransientError):
            line.tick()
    for name in QUERIES:
        line.equal(name)
    line.close()
    database.close()
