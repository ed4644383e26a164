"""From a commit to the row in the stream table, as a client sees it: IMMEDIATE and schedule '1s', idle and under load.

A probe commits a row, looks for it in the stream table every few milliseconds and pauses for a random while. Under
load a writer keeps other tables and their stream tables busy. There is no bar but that every row arrives.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from common.fleet import load, run, site, wait_for
from common.harness import note, percentile, report

from pgtrickle.db.install import install
from pgtrickle.maintain.verify import verify_tables

PROBES = {"immediate": ("calculated", "IMMEDIATE"), "every_second": ("1s", "DIFFERENTIAL")}
BUSY = 10
LOOK_SECONDS = 0.003
PATIENCE_SECONDS = 60.0


def prepare(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        install(conn)
        create = "SELECT pgtrickle.create_stream_table(%s, %s, %s, %s)"
        for name, (schedule, mode) in PROBES.items():
            conn.execute(f"CREATE TABLE of_{name} (id int PRIMARY KEY, v int NOT NULL)")
            conn.execute(f"INSERT INTO of_{name} SELECT -i, i FROM generate_series(1, 1000) AS i")
            conn.execute(create, (name, f"SELECT id, v * 2 AS twice FROM of_{name}", schedule, mode))
        for number in range(BUSY):
            conn.execute(f"CREATE TABLE busy{number} (id int PRIMARY KEY, g int, v int)")
            conn.execute(f"INSERT INTO busy{number} SELECT i, i % 50, i FROM generate_series(1, 10000) AS i")
            query = f"SELECT g, count(*) AS n, sum(v) AS total FROM busy{number} GROUP BY g"
            conn.execute(create, (f"of_busy{number}", query, "1s", "DIFFERENTIAL"))


def probe(dsn: str, name: str, first: int, count: int, seed: int) -> list[float]:
    """Milliseconds from the answer to COMMIT until the row is seen."""
    rng, found = random.Random(seed), []
    with psycopg.connect(dsn, autocommit=True) as conn:
        for number in range(first, first + count):
            time.sleep(rng.uniform(0.05, 0.5))
            conn.execute(f"INSERT INTO of_{name} VALUES (%s, %s)", (number, number))
            begun = time.perf_counter()
            while not conn.execute(f"SELECT FROM {name} WHERE id = %s", (number,), prepare=True).fetchall():
                if time.perf_counter() - begun > PATIENCE_SECONDS:
                    raise SystemExit(f"{name}: row {number} has not arrived after {PATIENCE_SECONDS} s")
                time.sleep(LOOK_SECONDS)
            found.append((time.perf_counter() - begun) * 1000)
    return found


def write(dsn: str, stop: threading.Event, written: list[int]) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not stop.wait(0.01):
            number = written[0] = written[0] + 1
            conn.execute(f"UPDATE busy{number % BUSY} SET v = v + 1 WHERE id % 500 = {number % 499}")


def measure(dsn: str, count: int, first: int) -> dict[str, Any]:
    """Both probes at the same time."""
    with ThreadPoolExecutor(len(PROBES)) as threads:
        futures = {name: threads.submit(probe, dsn, name, first, count, seed) for seed, name in enumerate(PROBES)}
        results = {name: future.result() for name, future in futures.items()}
    return {
        name: {"p50_ms": percentile(found, 0.5), "p99_ms": percentile(found, 0.99), "max_ms": round(max(found), 1)}
        for name, found in results.items()
    }


def is_loaded(conn: psycopg.Connection[Any]) -> bool:
    row = conn.execute("SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables").fetchone()
    return row is not None and bool(row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probes", type=int, default=100)
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    with site() as where:
        with psycopg.connect(where.postgres.dsn(), autocommit=True) as conn:
            conn.execute("CREATE DATABASE fresh")
        dsn = where.postgres.dsn("fresh")
        prepare(dsn)
        with psycopg.connect(dsn, autocommit=True) as conn, run(where, {"parallel_refresh_mode": "on"}):
            wait_for(lambda: is_loaded(conn), 180, "all stream tables are loaded")
            measure(dsn, 10, 1_000_000)  # templates get compiled
            figures["idle"] = {**measure(dsn, given.probes, 2_000_000), "load_average": load()}
            note(f"idle: {figures['idle']}")
            stop, written = threading.Event(), [0]
            writer = threading.Thread(target=write, args=(dsn, stop, written), daemon=True)
            writer.start()
            measure(dsn, 10, 3_000_000)
            begun, before = time.monotonic(), written[0]
            figures["under_load"] = {**measure(dsn, given.probes, 4_000_000), "load_average": load()}
            figures["under_load"]["commits_per_second"] = round((written[0] - before) / (time.monotonic() - begun), 1)
            note(f"under load: {figures['under_load']}")
            stop.set()
            writer.join()
            wrong = [result for result in verify_tables(dsn, None) if not result.ok]
    if wrong:
        raise SystemExit(f"differs from its query: {wrong[0]}")
    report("freshness", True, probes=given.probes, **figures)


if __name__ == "__main__":
    main()
