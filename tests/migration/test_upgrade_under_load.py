"""Upgrades while others write, work or upgrade, upgrades that are killed, and upgrades by other roles."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from pgtrickle.db import SCHEMA_VERSION
from pgtrickle.db.install import SCHEDULER_LOCK
from pgtrickle.errors import TransientError
from tests.conftest import ROLE, Database, create_database
from tests.line import Line
from tests.migration.earlier import WRITTEN, Earlier, check_refreshed, upgrade
from tests.migration.schema import difference, schema_of

VERSION = "SELECT max(version) FROM pgtrickle.pgt_schema_version"


def start_install(dsn: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pgtrickle.cli", "install", dsn]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output


class Writer:
    """Short transactions, one after the other, until it is stopped. No statement waits for a lock forever."""

    def __init__(self, database: Database) -> None:
        self.written = 0
        self.error: psycopg.Error | None = None
        self._conn = database.connect(autocommit=False, options="-c lock_timeout=120s")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                order = 10_000 + self.written
                self._conn.execute("INSERT INTO orders VALUES (%s, 1 + %s %% 9, 20, '2026-02-02')", (order, order))
                self._conn.execute("UPDATE customers SET name = 'n' || %s WHERE id = 1 + %s %% 9", (order, order))
                if order % 3 == 0:
                    self._conn.execute("DELETE FROM orders WHERE id = %s", (order - 2,))
                self._conn.commit()
                self.written += 1
                time.sleep(0.002)
        except psycopg.Error as error:
            self.error = error

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 240
        while self.written < count and self.error is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.written >= count, self.error

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert self.error is None, self.error


def test_no_change_of_a_busy_writer_is_lost(earlier: Earlier, make_line: Callable[[str], Line]) -> None:
    earlier.write(0)
    writer = Writer(earlier.main)
    try:
        writer.wait_for(20)
        finish(start_install(earlier.main.dsn))
        finish(start_install(earlier.origin.dsn))
        writer.wait_for(writer.written + 20)
    finally:
        writer.stop()
    earlier.write(1)
    earlier.write(2)
    assert earlier.marked() == WRITTEN
    check_refreshed(earlier, make_line(earlier.main.dsn))


def test_install_that_is_killed_at_any_time_leaves_one_version_or_the_other(earlier: Earlier) -> None:
    old, content = schema_of(earlier.main.dsn), earlier.content()
    installed = create_database(earlier.main.server, "fresh")
    upgrade(installed)
    new = schema_of(installed.dsn)
    # The moments are spread over one undisturbed install, which includes the start of Python.
    begun = time.monotonic()
    finish(start_install(installed.dsn))
    whole = time.monotonic() - begun
    found = set()
    for step in range(1, 7):
        process = start_install(earlier.main.dsn)
        time.sleep(whole * step / 6)
        process.kill()
        process.communicate()
        earlier.main.superuser_sql(
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE application_name = 'pgtrickle/install'"
        )
        ((version,),) = earlier.main.sql(VERSION)
        found.add(version)
        assert not difference(schema_of(earlier.main.dsn), {earlier.version: old, SCHEMA_VERSION: new}[version])
        assert earlier.content() == content
    assert earlier.version in found
    finish(start_install(earlier.main.dsn))
    assert not difference(schema_of(earlier.main.dsn), new)


def test_two_installs_at_once_upgrade_once(earlier: Earlier) -> None:
    for process in [start_install(earlier.main.dsn) for _ in range(2)]:
        finish(process)
    versions = "SELECT version FROM pgtrickle.pgt_schema_version ORDER BY version"
    assert earlier.main.sql(versions) == [(earlier.version,), (SCHEMA_VERSION,)]


def test_sessions_of_a_running_control_plane_give_way(earlier: Earlier) -> None:
    """A scheduler that holds its lock, a worker in a refresh, a database that mirrors tables of this one."""
    with (
        psycopg.connect(earlier.main.dsn, application_name="pgtrickle/scheduler", autocommit=True) as scheduler,
        psycopg.connect(earlier.main.dsn, application_name="pgtrickle/writer") as worker,
        psycopg.connect(earlier.main.dsn, application_name="pgtrickle/origin", autocommit=True) as reader,
    ):
        scheduler.execute("SELECT pg_advisory_lock(%s)", (SCHEDULER_LOCK,))
        worker.execute("UPDATE pgtrickle.pgt_stream_tables SET epoch = epoch + 1")
        finish(start_install(earlier.main.dsn))
        for session in (scheduler, worker, reader):
            with pytest.raises(psycopg.OperationalError):
                session.execute("SELECT 1")
    assert earlier.main.sql(VERSION) == [(SCHEMA_VERSION,)]


def test_a_reader_of_the_catalog_makes_install_give_up_and_change_nothing(
    earlier: Earlier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtrickle.db.lock_retry.DEADLINE_SECONDS", 0.5)
    before = schema_of(earlier.main.dsn)
    reader = earlier.main.connect(autocommit=False)
    reader.execute("SELECT count(*) FROM pgtrickle.pgt_stream_tables")
    with pytest.raises(TransientError, match="objects of pgtrickle are in use"):
        upgrade(earlier.main)
    assert not difference(schema_of(earlier.main.dsn), before)
    reader.rollback()
    upgrade(earlier.main)


def test_upgrade_by_a_superuser_leaves_the_owner(earlier: Earlier) -> None:
    installed = create_database(earlier.main.server, "fresh")
    upgrade(installed)
    for database in (earlier.main, installed):  # a superuser also creates the role of the broker
        finish(start_install(database.superuser_dsn))
    assert not difference(schema_of(earlier.main.dsn), schema_of(installed.dsn))
    owner = "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'pgtrickle'::regnamespace"
    assert earlier.main.sql(owner) == [(ROLE,)]


def test_upgrade_by_a_role_without_the_right_changes_nothing(earlier: Earlier) -> None:
    earlier.main.superuser_sql("CREATE ROLE stranger LOGIN PASSWORD 'stranger'")
    before = schema_of(earlier.main.dsn)
    process = start_install(earlier.main.server.dsn(earlier.main.name, user="stranger", password="stranger"))
    output, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert len(output.splitlines()) == 1, output
    assert not difference(schema_of(earlier.main.dsn), before)
