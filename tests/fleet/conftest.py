"""The product as processes: a PostgreSQL of the test's own, the demo's shop with its workload, `pgtrickle run`."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.demo.run import example
from pgtrickle.demo.workload import Workload
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database, prepare_server


class Run:
    """`pgtrickle run` as a process, started as often as the test likes. `spark_url` None: it has its own Spark."""

    def __init__(self, dsns: Sequence[str], spark_url: str | None, log: Path) -> None:
        self._dsns = dsns
        self._spark_url = spark_url
        self._marker = f"FLEET_MARKER={secrets.token_hex(8)}"
        self.log = log
        self.environ: dict[str, str] = {}  # what it gets besides
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **settings: object) -> subprocess.Popen[bytes]:
        given = {"scheduler_interval_ms": 100, **settings}
        command = [sys.executable, "-m", "pgtrickle.cli"]
        if (profile := given.pop("profile", None)) is not None:
            command += ["--profile", str(profile)]
        for name, value in given.items():
            command += ["--set", f"{name}={value}"]
        command += ["run", *(word for dsn in self._dsns for word in ("--server", dsn))]
        if self._spark_url is not None:
            command += ["--spark-remote", self._spark_url]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environ, "PYTHONUNBUFFERED": "1", **self.environ, **dict([self._marker.split("=")])},
            )
        return self.process

    def kill(self) -> None:
        """As the kernel would, when memory runs out."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(120)
            self.process = None

    def end(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Exit status, and the seconds that it took."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        self.process = None
        return status, time.monotonic() - began

    def processes(self) -> list[int]:
        """All that are alive and came from here, the fork server and Spark's guard included."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z" and self._marker.encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def traceback(self) -> str:
        """The first one in the log, with the lines around it; empty if there is none."""
        text = self.text()
        at = text.find("Traceback")
        return text[max(0, at - 500) : at + 5000] if at >= 0 else ""


class Shop:
    """The demo's schema and stream tables, all of them refreshed whenever something changed."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server
        self.database = create_database(server, "shop")
        self.dsn = self.database.dsn
        with connect(self.dsn, role="test", autocommit=True) as connection:
            connection.execute("SET search_path = public")
            for name in ("schema.sql", "data.sql"):
                connection.execute(example(name).encode())
            install(connection)
            connection.execute(example("stream_tables.sql").encode())
            connection.execute("UPDATE pgtrickle.pgt_stream_tables SET schedule = 'calculated'")

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.database.sql(text, *params)

    def workload(self, seed: int = 11) -> Workload:
        return Workload(self.dsn, rng=random.Random(seed), pause_s=0.02)

    def refreshes(self) -> int:
        return int(self.sql("SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'COMPLETED'")[0][0])

    def wait_loaded(self) -> None:
        wait_for(lambda: self.sql("SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables")[0][0])

    def wait_progress(self, more: int = 1) -> None:
        """Until so many refreshes more have been committed."""
        wanted = self.refreshes() + more
        wait_for(lambda: self.refreshes() >= wanted)

    def verify(self) -> None:
        """By the command that a user would give; a running `pgtrickle run` is needed for what it has to wait for."""
        done = subprocess.run(
            [sys.executable, "-m", "pgtrickle.cli", "verify", "--all", "--json", "--server", self.dsn],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        results = json.loads(done.stdout)
        assert len(results) == 6
        assert [r for r in results if not r["ok"]] == []

    def check_history(self) -> None:
        """What the history tells adds up to what is there, and time never went back."""
        counted = self.sql("SELECT pgt_name FROM pgtrickle.pgt_stream_tables ORDER BY pgt_id")
        for (name,) in counted:
            rows = self.sql(
                f"SELECT (SELECT count(*) FROM {name}), "
                "(SELECT sum(rows_inserted - rows_deleted) FROM pgtrickle.pgt_refresh_history "
                " JOIN pgtrickle.pgt_stream_tables USING (pgt_id) "
                " WHERE pgt_name = %s AND pgt_refresh_history.status = 'COMPLETED')",
                name,
            )
            assert rows[0][0] == rows[0][1], name
        assert (
            self.sql(
                "SELECT * FROM (SELECT pgt_id, refresh_id, data_timestamp, lag(data_timestamp) OVER "
                "(PARTITION BY pgt_id ORDER BY refresh_id) AS previous FROM pgtrickle.pgt_refresh_history "
                "WHERE status = 'COMPLETED') AS h WHERE data_timestamp < previous"
            )
            == []
        )
        states = self.sql(
            "SELECT pgt_name, status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE status <> 'ACTIVE'"
        )
        assert states == []


class Small:
    """A database with a table t (k, v) and a stream table s of sums over it, current whenever t changed."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.name = database.name

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.database.sql(text, *params)

    def add(self, value: int = 1) -> None:
        self.sql("INSERT INTO t VALUES (%s %% 3, %s)", value, value)

    def is_current(self) -> bool:
        return self.sql(
            "SELECT NOT EXISTS (SELECT k, sum(v) FROM t GROUP BY k EXCEPT SELECT k, total FROM s) "
            "AND (SELECT count(*) FROM s) = (SELECT count(DISTINCT k) FROM t)"
        ) == [(True,)]

    def seconds_to_refresh(self) -> float:
        """From a commit until its effect is there."""
        self.add()
        began = time.monotonic()
        wait_for(self.is_current)
        return time.monotonic() - began

    def pid(self, kind: str) -> int:
        """Of a process of the fleet, as the database tells; of a scheduler: its own."""
        rows = self.sql(
            "SELECT (p ->> 'pid')::int FROM pgtrickle.pgt_runtime, jsonb_array_elements(state -> 'processes') AS p "
            "WHERE p ->> 'kind' = %s AND (p ->> 'database' = current_database() OR p ->> 'database' IS NULL)",
            kind,
        )
        return int(rows[0][0]) if rows else 0

    def state(self) -> dict[str, Any]:
        rows = self.sql("SELECT state FROM pgtrickle.pgt_runtime")
        return dict(rows[0][0]) if rows else {}

    def backends(self, role: str) -> list[int]:
        rows = self.sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s",
            f"pgtrickle/{role}",
        )
        return [pid for (pid,) in rows]


def make_small(server: EmbeddedPostgres, name: str, template: str = "template1") -> Small:
    """A copy of a template has the same oids and the same ids."""
    database = create_database(server, name, template=template)
    if template == "template1":
        with connect(database.dsn, role="test", autocommit=True) as connection:
            connection.execute("SET search_path = public")
            connection.execute("CREATE TABLE t (k int, v int); INSERT INTO t VALUES (0, 1), (1, 1)")
            install(connection)
            connection.execute(
                "SELECT pgtrickle.create_stream_table('s', 'SELECT k, sum(v) AS total FROM t GROUP BY k', 'calculated')"
            )
    return Small(database)


def make_slow(small: Small, name: str, *, seconds: float) -> None:
    """A stream table of one row whose refresh takes its time."""
    small.sql(
        "CREATE OR REPLACE FUNCTION slow(seconds float8) RETURNS float8 LANGUAGE plpgsql STABLE AS "
        "'BEGIN PERFORM pg_sleep(seconds); RETURN seconds; END'"
    )
    small.sql(f"CREATE TABLE {name}_source (seconds float8); INSERT INTO {name}_source VALUES ({seconds})")
    query = f"SELECT slow(seconds) AS seconds FROM {name}_source"
    small.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'FULL')", name, query)


class Gate:
    """A stream table of one row whose refresh waits until the gate is opened."""

    def __init__(self, small: Small, name: str) -> None:
        self._session = psycopg.connect(small.database.dsn, autocommit=True)
        self._session.execute("SELECT pg_advisory_lock(4711)")
        small.sql(
            "CREATE OR REPLACE FUNCTION gate(int) RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN "
            'WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = "advisory" AND objid = 4711 AND granted) LOOP '
            "PERFORM pg_sleep(0.05); END LOOP; RETURN $1; END'".replace('"', "''")
        )
        small.sql(f"CREATE TABLE {name}_source (k int); INSERT INTO {name}_source VALUES (1)")
        query = f"SELECT gate(k) AS k FROM {name}_source"
        small.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'FULL')", name, query)

    def open(self) -> None:
        self._session.close()


def open_jobs(sql: Callable[..., list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    return sql("SELECT job_id, status, scheduler_pid FROM pgtrickle.pgt_scheduler_jobs WHERE finished_at IS NULL")


PATIENCE_S = 180.0  # limit of a wait for a condition: detects that it never holds, on a busy machine too


def wait_for(condition: Callable[[], object]) -> float:
    """How long it took. The server may be away in between."""
    began = time.monotonic()
    while True:
        try:
            if condition():
                return time.monotonic() - began
        except psycopg.OperationalError:
            pass
        assert time.monotonic() < began + PATIENCE_S, f"not within {PATIENCE_S} s"
        time.sleep(0.05)


@pytest.fixture
def own_server() -> Iterator[EmbeddedPostgres]:
    """Not the one of the other tests: this one is restarted and crashed. Commits count, the disk is not waited for."""
    server = EmbeddedPostgres.create(settings={"fsync": "off", "max_connections": "60"})
    with server:
        prepare_server(server)
        yield server


@pytest.fixture
def shop(own_server: EmbeddedPostgres) -> Shop:
    return Shop(own_server)


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(dsn: str | Sequence[str], spark_url: str | None) -> Run:
        dsns = [dsn] if isinstance(dsn, str) else dsn
        runs.append(Run(dsns, spark_url, tmp_path / f"run{len(runs)}.log"))
        return runs[-1]

    yield make
    for run in runs:
        run.kill()


@pytest.fixture
def run(shop: Shop, spark_url: str, make_run: Callable[..., Run]) -> Run:
    """Over the run's one Spark, so that a start takes a second."""
    return make_run(shop.dsn, spark_url)
