"""Many small stream tables, all changed: refreshes per second end to end, and Spark jobs, in waves and one by one.

(a) the same 20 definitions in each of 50 databases; (b) 1,000 different definitions over 20 sources in one database.
The yardstick is one Spark job per table: the same tables through the same workers and the same code, but the delta of
each is netted by a job of its own, however small. It is taken before the waves and after them, as a JVM gets quicker,
and the mean counts. The waves use no Spark job: all deltas are small. Beside the time, which other work on the machine
lengthens, stands the CPU that each process took.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg

sys.path.insert(0, str(Path(__file__).parent))
from common.fleet import cpu_seconds, family_cpu_seconds
from common.harness import WARM_UP_JOBS, note, report

from pgtrickle.db.install import install
from pgtrickle.dispatch.dispatcher import Dispatcher
from pgtrickle.ipc.channel import DatabaseSettings, Finished, Submit, call, listen
from pgtrickle.ipc.fleet_memory import FleetMemory
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.model.flow import Delta
from pgtrickle.model.work import SINGLETON, QueuedUnit, Unit
from pgtrickle.pipeline.delta_layout import NETTED_HERE_ROWS
from pgtrickle.pipeline.engine import netting
from pgtrickle.pipeline.engine.spark import SparkEngine, WorkItem
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings

WORKERS = 4
ROWS = 200  # of a source
CHANGES = 20  # per table and round
SHAPES = (
    "SELECT g, count(*) AS n, sum(v) AS total FROM {t} WHERE v % {k} = 0 GROUP BY g",
    "SELECT id, g, v * {k} AS scaled FROM {t} WHERE v > {k}",
    "SELECT g, min(v) AS lo, max(v + {k}) AS hi FROM {t} GROUP BY g",
    "SELECT a.id, b.v + {k} AS other FROM {t} AS a JOIN {t} AS b ON b.id = a.id + 1",
)


@dataclass(frozen=True, slots=True)
class Case:
    """So many databases, sources in each, and definitions in each."""

    name: str
    databases: int
    sources: int
    tables: int


def definitions(case: Case) -> list[tuple[str, str]]:
    found = []
    for number in range(case.tables):
        shape = SHAPES[number % len(SHAPES)]
        query = shape.format(t=f"t{number % case.sources}", k=1 + number // len(SHAPES))
        found.append((f"s{number}", query))
    return found


def prepare(dsn: str, case: Case) -> None:
    with psycopg.connect(dsn) as conn:
        install(conn)
        for number in range(case.sources):
            conn.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, g int, v int)")
            conn.execute(f"INSERT INTO t{number} SELECT i, i % 7, i FROM generate_series(1, {ROWS}) AS i")
        for name, query in definitions(case):
            conn.execute("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", (name, query))


def change(dsn: str, case: Case, round_: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        for number in range(case.sources):
            conn.execute(f"UPDATE t{number} SET v = v + 1 WHERE id % {ROWS // (CHANGES // 2)} = {round_ % 10}")


class OneByOne(SparkEngine):
    """The yardstick: a Spark job per table, whoever else waits. All else is shared: snapshots, statements, commits."""

    def run(self, items: Sequence[WorkItem]) -> list[Delta]:
        return [delta for item in items for delta in self._run([item])]


@dataclass(frozen=True, slots=True)
class Figures:
    """What it took to refresh all tables of all databases once. CPU in seconds, by process."""

    seconds: float
    jobs: int
    cpu: Mapping[str, float]


class Fleet:
    """The pipeline as it is, asked by us instead of by schedulers: from a queued unit to visible rows."""

    def __init__(self, engine: SparkEngine, dsns: Mapping[str, str], meter: Meter) -> None:
        self.engine = engine
        self.meter = meter
        self._directory = tempfile.TemporaryDirectory()
        path, key = Path(self._directory.name), b"key"
        self._stop = threading.Event()
        settings = Settings(max_dynamic_refresh_workers=WORKERS, template_cache_max_entries=4096)
        memory = FleetMemory(path / "memory", create=True)
        self._dispatcher = Dispatcher(settings, engine, memory, self._stop)
        self._listener = listen(path / "socket", key)
        self._dispatcher.listen(self._listener)
        self._thread = threading.Thread(target=self._dispatcher.run, args=(10.0,), name="dispatcher")
        self._thread.start()
        self.lines: dict[str, Connection] = {}
        self.jobs: dict[str, tuple[QueuedUnit, ...]] = {}
        for name, dsn in dsns.items():
            with psycopg.connect(dsn) as conn:
                rows = conn.execute("SELECT pgt_id FROM pgtrickle.pgt_stream_tables ORDER BY pgt_id").fetchall()
            self.jobs[name] = tuple(QueuedUnit(i, Unit(SINGLETON, ((i,),), order=n)) for n, (i,) in enumerate(rows))
            self.lines[name] = call(path / "socket", key, seconds=10, is_stopped=lambda: False)
            self.lines[name].send(DatabaseSettings(f"1/{name}", name, dsn, settings))

    def run(self) -> Figures:
        jobs, cpu, begun = self.engine.jobs, self.meter.read(), time.perf_counter()
        for name, line in self.lines.items():
            line.send(Submit(self.jobs[name]))
        left = {name: len(own) for name, own in self.jobs.items()}
        while any(left.values()):
            ready = wait([self.lines[name] for name, count in left.items() if count], 600)
            for name, line in self.lines.items():
                if line in ready:
                    finished: Finished = line.recv()
                    left[name] -= len(finished.jobs)
                    bad = [f.detail for f in finished.results if f.branch != "ok"]
                    if bad:
                        raise SystemExit(f"{len(bad)} refreshes failed: {bad[0]}")
        seconds = time.perf_counter() - begun
        return Figures(seconds, self.engine.jobs - jobs, {k: v - cpu[k] for k, v in self.meter.read().items()})

    def close(self) -> None:
        self._stop.set()
        self._dispatcher.wake()
        self._thread.join()
        self._listener.close()
        for line in self.lines.values():
            line.close()
        self._directory.cleanup()


class Meter:
    """CPU seconds so far: of this process (dispatcher, workers, Spark's client), of PostgreSQL, of Spark."""

    def __init__(self, postgres: EmbeddedPostgres, server: SparkServer) -> None:
        self._postgres = postgres.pid
        self._spark = server.pid

    def read(self) -> dict[str, float]:
        return {
            "python": cpu_seconds(os.getpid()) or 0.0,
            "postgresql": family_cpu_seconds(self._postgres),
            "spark": cpu_seconds(self._spark) or 0.0,
        }


def measure(
    case: Case, postgres: EmbeddedPostgres, engines: Sequence[SparkEngine], meter: Meter, rounds: int
) -> dict[str, Any]:
    names = [f"{case.name}{i}" for i in range(case.databases)]
    note(f"{case.name}: {case.databases} databases, {case.tables} stream tables in each")
    with psycopg.connect(postgres.dsn(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {names[0]}")
        prepare(postgres.dsn(names[0]), case)
        for name in names[1:]:
            conn.execute(f"CREATE DATABASE {name} TEMPLATE {names[0]}")
    fleets = [Fleet(e, {name: postgres.dsn(name) for name in names}, meter) for e in engines]
    for fleet in fleets:  # all tables are compiled, and those that are new are loaded
        fleet.run()
    total = case.databases * case.tables
    blocks: list[list[Figures]] = [[], [], []]
    # Rounds of one kind follow one another: the pipeline closes connections that nobody has used for half a minute.
    for round_, block in enumerate(b for b in range(3) for _ in range(rounds)):
        for name in names:
            change(postgres.dsn(name), case, round_)
        which = (1, 0, 1)[block]
        with patch.object(netting, "NETTED_HERE_ROWS", 0 if which else NETTED_HERE_ROWS):
            figures = fleets[which].run()
        blocks[block].append(figures)
        note(
            f"  {'one by one' if which else 'in waves':10}  {total / figures.seconds:6.1f} tables/s  "
            f"{figures.jobs} Spark jobs  CPU ms per table {per_table(figures, total)}"
        )
    wrong = [r for name in (names[0], names[-1]) for r in verify_tables(postgres.dsn(name), None) if not r.ok]
    if wrong:
        raise SystemExit(f"{case.name}: {wrong[0]}")
    for fleet in fleets:
        fleet.close()
    before, waves, after = (min(block, key=lambda f: f.seconds) for block in blocks)
    single = mean(before, after)
    return {
        "tables": total,
        "tables_per_second": round(total / waves.seconds, 1),
        "spark_jobs": waves.jobs,
        "cpu_ms_per_table": per_table(waves, total),
        "one_by_one_per_second": round(total / single.seconds, 1),
        "one_by_one_jobs": single.jobs,
        "one_by_one_cpu_ms_per_table": per_table(single, total),
        "ratio": round(single.seconds / waves.seconds, 2),
        "cpu_ratio": round(sum(single.cpu.values()) / sum(waves.cpu.values()), 2),
    }


def mean(one: Figures, other: Figures) -> Figures:
    cpu = {part: (one.cpu[part] + other.cpu[part]) / 2 for part in one.cpu}
    return Figures((one.seconds + other.seconds) / 2, (one.jobs + other.jobs) // 2, cpu)


def per_table(figures: Figures, tables: int) -> dict[str, float]:
    return {part: round(seconds * 1000 / tables, 2) for part, seconds in figures.cpu.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the databases and tables, for a quick look")
    parser.add_argument("--rounds", type=int, default=3, help="in a row; the best of them counts")
    parser.add_argument("--cases", nargs="+", choices=("a", "b"), default=("a", "b"))
    given = parser.parse_args()

    def scaled(number: int) -> int:
        return max(1, int(number * float(given.share)))

    cases = [c for c in (Case("a", scaled(50), 5, 20), Case("b", 1, 20, scaled(1000))) if c.name in given.cases]
    server = SparkServer.start(Settings())
    settings = {"shared_buffers": "512MB", "max_connections": "300", "synchronous_commit": "off"}
    try:
        with EmbeddedPostgres.create(durable=False, settings=settings) as postgres:
            server.wait_ready(180)
            meter = Meter(postgres, server)
            engines = [SparkEngine(lambda: server.url), OneByOne(lambda: server.url)]
            note(f"warming Spark up with {WARM_UP_JOBS} jobs")
            for _ in engines[0].warm_up(WARM_UP_JOBS):
                pass
            found = {case.name: measure(case, postgres, engines, meter, given.rounds) for case in cases}
            for engine in engines:
                engine.close()
    finally:
        server.stop()
    bars = {"a": (10.0, 100.0), "b": (2.0, 0.0)}  # times the yardstick, tables per second
    ok = all(f["ratio"] >= bars[n][0] and f["tables_per_second"] >= bars[n][1] for n, f in found.items())
    report("waves", ok=ok, **found)


if __name__ == "__main__":
    main()
