"""The product as processes: a PostgreSQL of the test's own, the demo's shop with its workload, `pgtrickle run`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.runtime.demo import example
from pgtrickle.runtime.embedded import EmbeddedPostgres
from pgtrickle.runtime.workload import Workload
from tests.conftest import create_database, prepare_server


class Run:
    """`pgtrickle run` as a process, started as often as the test likes. `spark_url` None: it has its own Spark."""

    def __init__(self, dsn: str, spark_url: str | None, log: Path) -> None:
        self._dsn = dsn
        self._spark_url = spark_url
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **settings: object) -> subprocess.Popen[bytes]:
        given = {"scheduler_interval_ms": 100, **settings}
        command = [sys.executable, "-m", "pgtrickle.cli"]
        for name, value in given.items():
            command += ["--set", f"{name}={value}"]
        command += ["run", "--server", self._dsn]
        if self._spark_url is not None:
            command += ["--spark-remote", self._spark_url]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**environ, "PYTHONUNBUFFERED": "1"}
            )
        return self.process

    def kill(self) -> None:
        """As the kernel would, when memory runs out."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)
            self.process = None

    def end(self, number: int = signal.SIGTERM, timeout: float = 20) -> tuple[int, float]:
        """Exit status, and the seconds that it took."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(timeout)
        self.process = None
        return status, time.monotonic() - began

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


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

    def wait_loaded(self, seconds: float = 60) -> None:
        wait_for(lambda: self.sql("SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables")[0][0], seconds)

    def wait_progress(self, more: int = 1, seconds: float = 30) -> None:
        """Until so many refreshes more have been committed."""
        wanted = self.refreshes() + more
        wait_for(lambda: self.refreshes() >= wanted, seconds)

    def verify(self) -> None:
        """By the command that a user would give; a running `pgtrickle run` is needed for what it has to wait for."""
        done = subprocess.run(
            [sys.executable, "-m", "pgtrickle.cli", "verify", "--all", "--json", "--server", self.dsn],
            capture_output=True,
            text=True,
            timeout=90,
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


def wait_for(condition: Callable[[], object], seconds: float) -> None:
    """The server may be away meanwhile."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except psycopg.OperationalError:
            pass
        assert time.monotonic() < deadline, f"not within {seconds} s"
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

    def make(dsn: str, spark_url: str | None) -> Run:
        runs.append(Run(dsn, spark_url, tmp_path / f"run{len(runs)}.log"))
        return runs[-1]

    yield make
    for run in runs:
        run.kill()


@pytest.fixture
def run(shop: Shop, spark_url: str, make_run: Callable[..., Run]) -> Run:
    """Over the run's one Spark, so that a start takes a second."""
    return make_run(shop.dsn, spark_url)
