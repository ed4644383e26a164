"""One version number; programs and catalogs of different versions leave one another alone, and say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtrickle import __version__
from pgtrickle.db import SCHEMA_VERSION, connect, install, installed_version
from pgtrickle.db.connect import TRANSACTION
from pgtrickle.errors import CatalogVersionError
from tests.conftest import Database

OLDER, NEWER = SCHEMA_VERSION - 1, SCHEMA_VERSION + 1
COMMANDS = (
    ("refresh", "--all", "--server", "{dsn}"),
    ("status", "--server", "{dsn}"),
    ("verify", "--all", "--server", "{dsn}"),
    ("plan", "--query", "SELECT 1 AS a", "--server", "{dsn}"),
    ("detach", "--server", "{dsn}", "nowhere"),
    ("apply", "--yes", "-f", "{folder}", "--server", "{dsn}"),
    ("export", "-f", "{folder}", "--server", "{dsn}"),
)


def environ() -> dict[str, str]:
    return {**{k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")}, "COLUMNS": "300"}


def pgtrickle(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pgtrickle.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environ(),
    )


def set_version(database: Database, version: int) -> None:
    database.sql("DELETE FROM pgtrickle.pgt_schema_version")
    database.sql("INSERT INTO pgtrickle.pgt_schema_version (version, package_version) VALUES (%s, '9.9.9')", version)


def written(database: Database) -> list[tuple[str, int]]:
    """How many rows each table of ours has had written, by the xmin of its rows: any write shows."""
    tables = database.sql(
        "SELECT c.oid::regclass::text FROM pg_class AS c "
        "WHERE c.relnamespace = 'pgtrickle'::regnamespace AND c.relkind = 'r' ORDER BY 1"
    )
    return [(t, database.sql(f"SELECT md5(string_agg(x.xmin || x::text, ';')) FROM {t} AS x")[0][0]) for (t,) in tables]


def test_catalog_has_the_version_of_the_package(installed: Database) -> None:
    rows = installed.sql("SELECT version, package_version FROM pgtrickle.pgt_schema_version")
    assert rows == [(SCHEMA_VERSION, __version__)]
    assert installed.sql("SELECT pgtrickle.version()") == [(__version__,)]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
@pytest.mark.parametrize(("version", "remedy"), [(OLDER, "pgtrickle install"), (NEWER, "upgrade pgtrickle to 9.9.9")])
def test_commands_say_what_to_do_in_one_line_and_change_nothing(
    installed: Database, tmp_path: Path, command: tuple[str, ...], version: int, remedy: str
) -> None:
    (tmp_path / "s.sql").write_text("SELECT 1 AS a")
    set_version(installed, version)
    before = written(installed)
    done = pgtrickle(*(word.format(dsn=installed.dsn, folder=tmp_path) for word in command))
    assert done.returncode == 1, done
    said = [line for line in (done.stderr + done.stdout).splitlines() if "has version" in line]
    assert len(said) == 1, done
    assert remedy in said[0]
    assert f"version {version}" in said[0]
    assert written(installed) == before


def test_doctor_names_the_catalog(installed: Database) -> None:
    set_version(installed, NEWER)
    done = pgtrickle("doctor", "--server", installed.dsn)
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("BAD  catalog") and installed.name in line]
    assert "upgrade pgtrickle to 9.9.9" in line


def test_install_refuses_a_newer_catalog_and_changes_nothing(installed: Database) -> None:
    set_version(installed, NEWER)
    before = written(installed)
    for dsn in (installed.dsn, installed.superuser_dsn):
        done = pgtrickle("install", dsn)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done
        assert "upgrade pgtrickle to 9.9.9" in done.stderr
    with connect(installed.dsn, role="test", pooler=TRANSACTION) as conn, pytest.raises(CatalogVersionError):
        install(conn)
    assert written(installed) == before


class Running:
    """`pgtrickle run` without Spark: schedulers run, nothing is refreshed."""

    def __init__(self, database: Database, log: Path) -> None:
        self.log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "pgtrickle.cli", "--set", "scheduler_interval_ms=100", "run"),
                    *("--server", database.dsn, "--spark-remote", "sc://127.0.0.1:1"),
                ],
                stdout=file,
                stderr=file,
                env=environ(),
            )

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not condition():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    def said_of(self, database: Database) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if f"database {database.name} has version" in line]


@pytest.fixture
def start_run(tmp_path: Path) -> Iterator[Callable[[Database], Running]]:
    started: list[Running] = []

    def start(database: Database) -> Running:
        started.append(Running(database, tmp_path / f"run{len(started)}.log"))
        return started[-1]

    yield start
    for running in started:
        running.stop()


def is_served(database: Database) -> bool:
    return bool(database.sql("SELECT count(*) FROM pgtrickle.pgt_runtime")[0][0])


@pytest.mark.timeout(400)
def test_run_reports_and_skips_a_database_of_another_version_and_serves_the_others(
    make_installed: Callable[[], Database], start_run: Callable[[Database], Running]
) -> None:
    older, newer, current = (make_installed() for _ in range(3))
    set_version(older, OLDER)
    set_version(newer, NEWER)
    before = written(older), written(newer)
    running = start_run(older)
    running.wait(lambda: is_served(current) and bool(running.said_of(older)) and bool(running.said_of(newer)))
    assert "pgtrickle install" in running.said_of(older)[0]
    assert "upgrade pgtrickle to 9.9.9" in running.said_of(newer)[0]
    assert (written(older), written(newer)) == before

    # An upgrade is noticed by the running control plane.
    with psycopg.connect(older.dsn) as conn:
        install(conn)
        assert installed_version(conn) == SCHEMA_VERSION
    running.wait(lambda: is_served(older))

    # So is one to a version that it does not know: the others go on.
    current.sql("INSERT INTO pgtrickle.pgt_schema_version (version, package_version) VALUES (%s, '9.9.9')", NEWER)
    current.sql("SELECT pgtrickle._wake('install')")
    running.wait(lambda: bool(running.said_of(current)))
    served = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE %s"
    running.wait(lambda: current.sql(served, "pgtrickle/scheduler") == [(0,)])
    running.wait(lambda: older.sql(served, "pgtrickle/scheduler") == [(1,)])  # it may be connecting anew
    assert len(running.said_of(older)) == len(running.said_of(newer)) == len(running.said_of(current)) == 1
