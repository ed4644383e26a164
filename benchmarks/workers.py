"""Workers at scale: 200 stream tables that keep changing, with pools of 4, 8 and 16 workers in turn.

Once a second the query of the scaling guide: how many workers are at work, how many units wait. More than 90 % at work
while units wait: the pool is too small. Less than 50 %: larger than needed. Beside it what comes out: refreshes per
second. The picture shows both over time.

What a worker takes is the slope of the pipeline's memory (the most of its own that it had) over the workers that had
connections, which is more than a few only while the pools are busy: --tables 400 on 2 cores.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from common.chart import Panel, draw
from common.fleet import Run, Site, load, memory_mib, run, site, wait_for
from common.harness import note, percentile, report

from pgtrickle.db.install import install
from pgtrickle.maintain.verify import verify_tables

POOLS = (4, 8, 16)
SOURCES = 20
ROWS = 200
SAMPLE = """
SELECT now() AS ts,
       (SELECT active_workers FROM pgtrickle.worker_pool_status()) AS active,
       (SELECT max_workers FROM pgtrickle.worker_pool_status()) AS pool_size,
       (SELECT COUNT(*) FROM pgtrickle.parallel_job_status(5) WHERE status = 'QUEUED') AS queue_depth
"""
WORKERS = "SELECT count(*) FROM pgtrickle.server_worker_inventory WHERE kind = 'worker'"
SHAPES = (
    "SELECT g, count(*) AS n, sum(v) AS total FROM {t} WHERE v % {k} = 0 GROUP BY g",
    "SELECT id, g, v * {k} AS scaled FROM {t} WHERE v > {k}",
    "SELECT g, min(v) AS lo, max(v + {k}) AS hi FROM {t} GROUP BY g",
    "SELECT a.id, b.v + {k} AS other FROM {t} AS a JOIN {t} AS b ON b.id = a.id + 1",
)


def prepare(dsn: str, tables: int) -> None:
    with psycopg.connect(dsn) as conn:
        install(conn)
        for number in range(SOURCES):
            conn.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, g int, v int)")
            conn.execute(f"INSERT INTO t{number} SELECT i, i % 7, i FROM generate_series(1, {ROWS}) AS i")
        for number in range(tables):
            query = SHAPES[number % len(SHAPES)].format(t=f"t{number % SOURCES}", k=1 + number // SOURCES)
            name = f"s{number}"
            conn.execute("SELECT pgtrickle.create_stream_table(%s, %s, '1s', 'DIFFERENTIAL')", (name, query))


def write(dsn: str, stop: threading.Event) -> None:
    """All sources, over and over: each stream table has changes whenever its time comes."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        number = 0
        while not stop.wait(0.02):
            number += 1
            conn.execute(f"UPDATE t{number % SOURCES} SET v = v + 1 WHERE id % 20 = {number % 17}")


def sampled(
    conn: psycopg.Connection[Any], running: Run, seconds: float
) -> tuple[list[tuple[float, int, int, int]], int, float]:
    """(seconds, active, pool size, queue depth), one per second; the most workers, and the most MiB of the pipeline."""
    found, begun, workers, mib = [], time.monotonic(), 0, 0.0
    (pipeline,) = (pid for pid, kind in running.kinds().items() if kind == "pipeline")
    while (elapsed := time.monotonic() - begun) < seconds:
        row = conn.execute(SAMPLE).fetchone()
        assert row is not None
        found.append((elapsed, *row[1:]))
        there = conn.execute(WORKERS).fetchone()
        assert there is not None
        workers, mib = max(workers, there[0]), max(mib, memory_mib(pipeline)["private"])
        time.sleep(max(0.0, 1 - (time.monotonic() - begun - elapsed)))
    return found, workers, mib


def refreshes(conn: psycopg.Connection[Any]) -> tuple[int, int]:
    """Done and failed."""
    row = conn.execute(
        "SELECT count(*) FILTER (WHERE status = 'COMPLETED'), count(*) FILTER (WHERE status = 'FAILED') "
        "FROM pgtrickle.pgt_refresh_history"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def is_loaded(conn: psycopg.Connection[Any]) -> bool:
    row = conn.execute("SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables").fetchone()
    return row is not None and bool(row[0])


def profile(
    where: Site, dsn: str, pool: int, seconds: float
) -> tuple[dict[str, Any], list[tuple[float, int, int, int]]]:
    settings = {
        "parallel_refresh_mode": "on",
        "max_dynamic_refresh_workers": pool,
        "max_concurrent_refreshes": pool,
        "scheduler_interval_ms": 500,
    }
    with psycopg.connect(dsn, autocommit=True) as conn, run(where, settings) as running:
        wait_for(lambda: is_loaded(conn), 300, "all stream tables are loaded")
        pool_size = "SELECT max_workers FROM pgtrickle.worker_pool_status()"  # until then, that of the run before
        wait_for(lambda: conn.execute(pool_size).fetchone() == (pool,), 60, "the pool is as large as it should be")
        stop = threading.Event()
        writer = threading.Thread(target=write, args=(dsn, stop), daemon=True)
        writer.start()
        time.sleep(min(10.0, seconds / 2))  # templates get compiled
        done, failed = refreshes(conn)
        samples, workers, mib = sampled(conn, running, seconds)
        more, failed = (a - b for a, b in zip(refreshes(conn), (done, failed), strict=True))
        stop.set()
        writer.join()
    used = [active / size for _, active, size, _ in samples]
    waiting = [float(depth) for *_, depth in samples]
    busy, mean = sum(u > 0.9 and d > 0 for u, d in zip(used, waiting, strict=True)), sum(used) / len(used)
    figures = {
        "utilisation": round(mean, 2),
        "utilisation_p90": percentile(used, 0.9),
        "queue_depth": round(sum(waiting) / len(waiting), 1),
        "queue_depth_p90": percentile(waiting, 0.9),
        "refreshes_per_second": round(more / seconds, 1),
        "failed": failed,
        "workers": workers,
        "pipeline_mib": mib,
        "pool_sizes": sorted({size for _, _, size, _ in samples}),
        "verdict": "undersized" if busy > 0.5 * len(samples) else "oversized" if mean < 0.5 else "fits",
        "load_average": load(),
    }
    note(f"{pool} workers: {figures}")
    return figures, samples


def mib_per_worker(pools: Sequence[tuple[int, float]]) -> float | None:
    """None if they had the same number of workers."""
    if len({workers for workers, _ in pools}) < 2:
        return None
    return round(statistics.linear_regression(*zip(*pools, strict=True)).slope, 1)


def plot(found: dict[int, list[tuple[float, int, int, int]]], path: Path) -> None:
    def lines(value: int) -> dict[str, Sequence[tuple[float, float]]]:
        return {
            f"{pool} workers": [(s[0], s[1] / s[2] * 100 if value == 1 else float(s[3])) for s in samples]
            for pool, samples in found.items()
        }

    draw([Panel("workers at work, % of the pool", lines(1), 100.0), Panel("units that wait", lines(3))], path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pools", type=int, nargs="+", default=POOLS)
    parser.add_argument("--plot", type=Path, default=Path("build/workers.png"))
    parser.add_argument("--without-spark", action="store_true", help="small changes need none")
    given = parser.parse_args()
    with site(spark=not given.without_spark) as where:
        with psycopg.connect(where.postgres.dsn(), autocommit=True) as conn:
            conn.execute("CREATE DATABASE scale")
        dsn = where.postgres.dsn("scale")
        prepare(dsn, given.tables)
        figures, samples = {}, {}
        for pool in given.pools:
            figures[pool], samples[pool] = profile(where, dsn, pool, given.seconds)
        wrong = [result for result in verify_tables(dsn, None) if not result.ok]
    plot(samples, given.plot)
    note(f"the picture is {given.plot}")
    if wrong:
        raise SystemExit(f"differs from its query: {wrong[0]}")
    ok = all(not f["failed"] and f["pool_sizes"] == [pool] for pool, f in figures.items())
    slope = mib_per_worker([(f["workers"], f["pipeline_mib"]) for f in figures.values()])
    report("workers", ok, tables=given.tables, mib_per_worker=slope, pools=figures)


if __name__ == "__main__":
    main()
