"""Many small stream tables, all changed: refreshes per second end to end, and Spark jobs, in waves and one by one.

(a) the same 20 definitions in each of 50 databases; (b) 1,000 different definitions over 20 sources in one database.
The yardstick is one Spark job per table: the same tables through the same workers, each in a job of its own.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parent))
from common.harness import WARM_UP_JOBS, note, report

from pgtrickle.db.install import install
from pgtrickle.dispatch.queue import Queue
from pgtrickle.dispatch.quota import Limit
from pgtrickle.model.flow import Delta
from pgtrickle.model.work import SINGLETON, Job, Unit
from pgtrickle.pipeline.spark import SparkEngine, WorkItem
from pgtrickle.runtime.embedded import EmbeddedPostgres
from pgtrickle.runtime.lease import work
from pgtrickle.runtime.site import Site
from pgtrickle.runtime.sparkserver import SparkServer
from pgtrickle.runtime.verify import verify_tables
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
    """The yardstick: a Spark job per table, whoever else waits."""

    def run(self, items: Sequence[WorkItem]) -> list[Delta]:
        return [delta for item in items for delta in self._run([item])]


class Fleet:
    """The pipeline's own parts, without schedulers: what is measured is the way from a queued unit to visible rows."""

    def __init__(self, engine: SparkEngine, sites: Sequence[Site]) -> None:
        self.engine = engine
        self.sites = {site.name: site for site in sites}
        self.ids: dict[str, list[int]] = {}

    def load(self) -> None:
        """Compiles all tables, and loads those that are new."""
        for name, site in self.sites.items():
            with psycopg.connect(site.dsn) as conn:
                rows = conn.execute("SELECT pgt_id FROM pgtrickle.pgt_stream_tables ORDER BY pgt_id").fetchall()
            self.ids[name] = [row[0] for row in rows]
        self.run()

    def run(self) -> tuple[float, int]:
        """Seconds and Spark jobs for all tables of all databases, each refreshed once."""
        queue = Queue()
        number = 0
        for name, ids in self.ids.items():
            for order, pgt_id in enumerate(ids):
                number += 1
                queue.put(name, Job(number, Unit(SINGLETON, ((pgt_id,),), order=order)))
        limits = {name: Limit(0, WORKERS) for name in self.sites}
        running = dict.fromkeys(self.sites, 0)
        lock = threading.Lock()
        failed: list[str] = []

        def worker() -> None:
            while True:
                with lock:
                    lease = queue.take(running, limits, WORKERS)
                    if lease is None:
                        return
                    running[lease.database] += 1
                finished = work(self.sites[lease.database], lease.jobs)
                failed.extend(f.detail or "?" for f in finished.fared if f.branch != "ok")
                with lock:
                    running[lease.database] -= 1

        jobs, begun = self.engine.jobs, time.perf_counter()
        with ThreadPoolExecutor(WORKERS) as threads:
            for future in [threads.submit(worker) for _ in range(WORKERS)]:
                future.result()
        if failed:
            raise SystemExit(f"{len(failed)} refreshes failed: {failed[0]}")
        return time.perf_counter() - begun, self.engine.jobs - jobs


def measure(case: Case, postgres: EmbeddedPostgres, engines: Sequence[SparkEngine], rounds: int) -> dict[str, Any]:
    names = [f"{case.name}{i}" for i in range(case.databases)]
    note(f"{case.name}: {case.databases} databases, {case.tables} stream tables in each")
    with psycopg.connect(postgres.dsn(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {names[0]}")
        prepare(postgres.dsn(names[0]), case)
        for name in names[1:]:
            conn.execute(f"CREATE DATABASE {name} TEMPLATE {names[0]}")
    settings = Settings(template_cache_max_entries=4096)
    fleets = [Fleet(e, [Site(name, postgres.dsn(name), settings, e) for name in names]) for e in engines]
    for fleet in fleets:
        fleet.load()
    total = case.databases * case.tables
    found: list[list[tuple[float, int]]] = [[], []]
    for round_ in range(2 * rounds):
        for name in names:
            change(postgres.dsn(name), case, round_)
        which = round_ % 2
        seconds, jobs = fleets[which].run()
        found[which].append((seconds, jobs))
        note(f"  {'one by one' if which else 'in waves':10}  {total / seconds:6.1f} tables/s  {jobs} Spark jobs")
    wrong = [r for name in (names[0], names[-1]) for r in verify_tables(postgres.dsn(name), None) if not r.ok]
    if wrong:
        raise SystemExit(f"{case.name}: {wrong[0]}")
    for fleet in fleets:
        for site in fleet.sites.values():
            site.close()
    waves, single = min(found[0]), min(found[1])
    return {
        "tables": total,
        "tables_per_second": round(total / waves[0], 1),
        "spark_jobs": waves[1],
        "one_by_one_per_second": round(total / single[0], 1),
        "one_by_one_jobs": single[1],
        "ratio": round(single[0] / waves[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the databases and tables, for a quick look")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()

    def scaled(number: int) -> int:
        return max(1, int(number * float(given.share)))

    cases = (Case("a", scaled(50), 5, 20), Case("b", 1, 20, scaled(1000)))
    server = SparkServer.start(Settings())
    settings = {"shared_buffers": "512MB", "max_connections": "300", "synchronous_commit": "off"}
    try:
        with EmbeddedPostgres.create(durable=False, settings=settings) as postgres:
            server.wait_ready(180)
            engines = [SparkEngine(lambda: server.url), OneByOne(lambda: server.url)]
            note(f"warming Spark up with {WARM_UP_JOBS} jobs")
            for _ in engines[0].warm_up(WARM_UP_JOBS):
                pass
            found = {case.name: measure(case, postgres, engines, given.rounds) for case in cases}
            for engine in engines:
                engine.close()
    finally:
        server.stop()
    ok = found["a"]["ratio"] >= 10 and found["a"]["tables_per_second"] >= 100 and found["b"]["ratio"] >= 2
    report("waves", ok=ok, **found)


if __name__ == "__main__":
    main()
