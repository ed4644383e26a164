"""An embedded PostgreSQL with durable settings, a warm Spark, and ticks that the benchmark asks for."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from pgtrickle.db.install import install
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.process.local_control_plane import LocalControlPlane
from pgtrickle.refresh.job import Outcome
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings, Sources

WARM_UP_JOBS = 150


class Bench:
    """A database with pgtrickle and a control plane whose ticks are called by hand."""

    def __init__(self, dsn: str, engine: SparkEngine | None, flags: Mapping[str, object] | None = None) -> None:
        self.dsn = dsn
        self.engine = engine
        self._flags = flags or {}
        self.conn: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)
        install(psycopg.connect(dsn))
        self._plane: LocalControlPlane | None = None

    @property
    def plane(self) -> LocalControlPlane:
        if self._plane is None:
            self._plane = self.another_plane()
        return self._plane

    def another_plane(self, **flags: object) -> LocalControlPlane:
        """With settings of its own. The caller closes it."""
        assert self.engine is not None
        return LocalControlPlane("bench", self.dsn, self.engine, Sources(flags={**self._flags, **flags}))

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(text, params or None)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description is not None else []

    def create(self, name: str, query: str, mode: str = "DIFFERENTIAL") -> None:
        self.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", name, query, mode)
        self.tick(name, "FULL")

    def tick(self, name: str, action: str = "DIFFERENTIAL") -> Outcome:
        """One turn, in which this table must have been refreshed in this way."""
        outcomes = [o for o in self.plane.tick() if o.table.name == name]
        if len(outcomes) != 1 or outcomes[0].error is not None or outcomes[0].action != action:
            raise SystemExit(f"{name} was not refreshed by {action}: {outcomes}")
        return outcomes[0]

    def verify(self, name: str) -> None:
        (result,) = verify_tables(self.dsn, [name], timeout_seconds=5)
        if not result.ok:
            raise SystemExit(f"{name} differs from its query: {result}")

    def close(self) -> None:
        if self._plane is not None:
            self._plane.close()
        self.conn.close()


@contextmanager
def bench(
    *,
    spark: bool = True,
    durable: bool = False,
    memory_mb: int | None = None,
    postgres_settings: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Iterator[Bench]:
    """`shared_buffers` holds the data; nothing waits for the disk unless `durable`: ratios compare work, not disks.

    `memory_mb`: Spark's heap. `flags`: settings of pgtrickle.
    """
    server_settings = Settings() if memory_mb is None else Settings(spark_driver_memory_mb=memory_mb)
    server = SparkServer.start(server_settings) if spark else None
    settings = {"shared_buffers": "1GB", "max_wal_size": "8GB", "synchronous_commit": "on" if durable else "off"}
    settings |= postgres_settings or {}
    try:
        with EmbeddedPostgres.create(durable=durable, settings=settings) as postgres:
            engine = None
            if server is not None:
                server.wait_ready(180)
                engine = SparkEngine(lambda: server.url)
                note(f"warming Spark up with {WARM_UP_JOBS} jobs")
                for _ in engine.warm_up(WARM_UP_JOBS):
                    pass
            opened = Bench(postgres.dsn(), engine, flags)
            try:
                yield opened
            finally:
                opened.close()
                if engine is not None:
                    engine.close()
    finally:
        if server is not None:
            server.stop()


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 2)


def python_unit_ms() -> float:
    """CPU time of a fixed amount of work in Python: what times of one machine are divided by to compare another one."""
    found = []
    for _ in range(15):
        begun, table = time.process_time(), {}
        for number in range(20_000):
            table[str(number)] = number
        found.append((time.process_time() - begun) * 1000)
    return percentile(found, 0.5)


def note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def report(name: str, ok: bool, **figures: Any) -> None:
    """The closing line; the exit status says whether the bars hold."""
    print(json.dumps({"benchmark": name, "ok": ok, **figures}), flush=True)
    sys.exit(0 if ok else 1)
