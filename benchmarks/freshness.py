"""From a commit to the row in the stream table: 20 stream tables, 100 commits per second, idle and under that load.

Two cases: IMMEDIATE with default settings; DIFFERENTIAL with schedule `calculated` and the profile low-latency. Half of
the stream tables are projections, which have one row for each row written: the server's commit timestamps of both rows
are compared, for all rows. The other half are aggregates. Bars, under load, of both: p50 <= 80 ms, p99 <= 250 ms.

The breakdown follows each row through its refresh; medians and 99th percentiles of each part, which do not add up:
wake (until the tick begins that finds it: the previous refresh of the same table, notification, debounce), tick (until
its unit is queued), queue (until a worker takes it), plan, read, net (by the worker), spark, apply (the refresh's own
timings), rest (what remains).

refresh_and_wait: a client writes a row, calls it, and looks whether the row is there. Bars: under the same load it
returns within 10 ms of the commit (p99); and while nobody else writes and ticks are a minute apart, no call takes a
second, so that none has waited for a tick.

--probes N measures something else instead: what a client sees that commits a row, looks for it every few milliseconds
and pauses for a random while, with an IMMEDIATE table and one with schedule '1s', idle and while a writer keeps other
tables busy. There is no bar but that every row arrives.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
from common.fleet import Site, load, run, site, wait_for
from common.harness import note, percentile, report

from pgtrickle.db.install import install
from pgtrickle.maintain.verify import verify_tables

PROBES = {"immediate": ("calculated", "IMMEDIATE"), "every_second": ("1s", "DIFFERENTIAL")}
BUSY = 10
LOOK_SECONDS = 0.003
PATIENCE_SECONDS = 60.0

# name: (refresh mode, profile)
CASES = {"immediate": ("IMMEDIATE", None), "low_latency": ("DIFFERENTIAL", "low-latency")}
TABLES = 20  # the first half of them projections
PER_SECOND = 100
IDLE_PER_SECOND = 4
P50_MS, P99_MS = 80.0, 250.0
AFTER_COMMIT_MS = 10.0
INTERVAL_MS, CALL_MS = 60_000, 1000.0

# Each row of a projection: from its commit to that of its refresh, and what happened in between, in milliseconds.
ARRIVALS = """
SELECT 1000 * extract(epoch FROM pg_xact_commit_timestamp(s.xmin) - pg_xact_commit_timestamp(t.xmin))::float8,
       greatest(0, 1000 * extract(epoch FROM j.tick_at - pg_xact_commit_timestamp(t.xmin)))::float8,
       1000 * extract(epoch FROM j.enqueued_at - greatest(j.tick_at, pg_xact_commit_timestamp(t.xmin)))::float8,
       1000 * extract(epoch FROM j.taken_at - j.enqueued_at)::float8,
       (h.timings ->> 'plan')::float8, (h.timings ->> 'read')::float8, (h.timings ->> 'net')::float8,
       (h.timings ->> 'spark')::float8, (h.timings ->> 'apply')::float8
FROM {source} AS t
JOIN {table} AS s ON s.id = t.id
JOIN pgtrickle.pgt_refresh_history AS h ON h.xmin = s.xmin AND h.pgt_id = %(pgt_id)s
LEFT JOIN LATERAL (
    SELECT j.tick_at, j.enqueued_at, j.taken_at
    FROM pgtrickle.pgt_scheduler_jobs AS j
    WHERE %(pgt_id)s = ANY (j.members) AND j.taken_at <= h.end_time
    ORDER BY j.enqueued_at DESC
    LIMIT 1
) AS j ON true
WHERE t.id >= %(first)s
"""
PARTS = ("wake", "tick", "queue", "plan", "read", "net", "spark", "apply")
# When the latest refresh of a table was committed, in seconds since the epoch.
COMMITTED = (
    "SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 FROM pgtrickle.pgt_stream_tables "
    "WHERE pgt_name = %s"
)


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


def prepare_case(dsn: str, mode: str) -> None:
    with psycopg.connect(dsn) as conn:
        install(conn)
        for number in range(TABLES):
            conn.execute(f"CREATE TABLE t{number} (id bigint PRIMARY KEY, g int NOT NULL, v int NOT NULL)")
            conn.execute(f"INSERT INTO t{number} SELECT -i, i % 50, i FROM generate_series(1, 10000) AS i")
            query = f"SELECT g, count(*) AS n, sum(v) AS total FROM t{number} GROUP BY g"
            if number < TABLES // 2:
                query = f"SELECT id, v * 2 AS twice FROM t{number}"
            create = "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)"
            conn.execute(create, (f"s{number}", query, mode))


def write_evenly(dsn: str, first: int, per_second: float, seconds: float) -> int:
    """One row per transaction, one table after the other. Returns the id after the last one."""
    begun, number = time.perf_counter(), first
    with psycopg.connect(dsn, autocommit=True) as conn:
        while (at := begun + (number - first) / per_second) < begun + seconds:
            time.sleep(max(0.0, at - time.perf_counter()))
            conn.execute(f"INSERT INTO t{number % TABLES} VALUES (%s, %s, 1)", (number, number % 50))
            number += 1
    return number


def has_all(conn: psycopg.Connection[Any], number: int) -> bool:
    missing = f"SELECT count(*) FROM t{number} AS t LEFT JOIN s{number} AS s USING (id) WHERE s.id IS NULL"
    return conn.execute(missing).fetchone() == (0,)


def arrivals(conn: psycopg.Connection[Any], first: int, after: int) -> dict[str, Any]:
    """Of the rows with ids from `first` to before `after`, when all have arrived."""
    rows: list[tuple[float | None, ...]] = []
    for number in range(TABLES // 2):
        names = {"source": f"t{number}", "table": f"s{number}"}
        wait_for(partial(has_all, conn, number), 60, "all rows arrive")
        pgt_id = conn.execute(
            "SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", (names["table"],)
        ).fetchone()
        assert pgt_id is not None
        rows += conn.execute(ARRIVALS.format(**names), {"pgt_id": pgt_id[0], "first": first}).fetchall()
    expected = sum(1 for i in range(first, after) if i % TABLES < TABLES // 2)
    if len(rows) != expected:
        raise SystemExit(f"{len(rows)} of {expected} rows have a refresh in the history")
    parts: dict[str, list[float]] = {name: [] for name in (*PARTS, "rest")}
    for total, *times in rows:
        assert total is not None
        known = [value or 0.0 for value in times]
        for name, value in zip(PARTS, known, strict=True):
            parts[name].append(value)
        parts["rest"].append(total - sum(known))
    totals = [row[0] for row in rows if row[0] is not None]
    return {
        "rows": len(rows),
        "p50_ms": percentile(totals, 0.5),
        "p99_ms": percentile(totals, 0.99),
        "max_ms": round(max(totals), 1),
        "parts_ms": {name: [percentile(by, 0.5), percentile(by, 0.99)] for name, by in parts.items()},
    }


def wait_calls(dsn: str, first: int, seconds: float) -> dict[str, Any]:
    """refresh_and_wait of one projection after the other, each with a row of its own, from the id `first` on."""
    rng, totals, after = random.Random(1), [], []
    until, number = time.perf_counter() + seconds, first
    with psycopg.connect(dsn, autocommit=True) as conn:
        while time.perf_counter() < until:
            time.sleep(rng.uniform(0.02, 0.2))
            table = number % (TABLES // 2)
            conn.execute(f"INSERT INTO t{table} VALUES (%s, 0, 1)", (number,))
            begun = time.perf_counter()
            conn.execute(f"CALL pgtrickle.refresh_and_wait('s{table}')")
            returned = time.time()
            totals.append((time.perf_counter() - begun) * 1000)
            committed = conn.execute(COMMITTED, (f"s{table}",)).fetchone()
            if conn.execute(f"SELECT FROM s{table} WHERE id = %s", (number,)).fetchone() is None:
                raise SystemExit(f"refresh_and_wait returned before row {number} was there")
            if committed is not None and committed[0] <= returned:  # otherwise a later refresh has followed
                after.append((returned - committed[0]) * 1000)
            number += 1
    return {
        "calls": len(totals),
        "p50_ms": percentile(totals, 0.5),
        "max_ms": round(max(totals), 1),
        "after_commit_p50_ms": percentile(after, 0.5),
        "after_commit_p99_ms": percentile(after, 0.99),
    }


def measure_calls(dsn: str, last: int, seconds: float) -> dict[str, Any]:
    """Under the load."""
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write_evenly, dsn, last, PER_SECOND, seconds)
        found = wait_calls(dsn, last + 1_000_000, seconds)
        writing.result()
    return found


def is_served(conn: psycopg.Connection[Any]) -> bool:
    return conn.execute("SELECT pgtrickle._is_served()").fetchone() == (True,)


def measure_case(where: Site, name: str, seconds: float) -> dict[str, Any]:
    mode, profile = CASES[name]
    with psycopg.connect(where.postgres.dsn(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    dsn = where.postgres.dsn(name)
    prepare_case(dsn, mode)
    found: dict[str, Any] = {}
    with psycopg.connect(dsn, autocommit=True) as conn, run(where, {}, profile):
        wait_for(lambda: is_loaded(conn), 180, "all stream tables are loaded")
        last = write_evenly(dsn, 0, PER_SECOND, 2 * seconds)  # Spark's code and our templates get compiled
        for phase, rate in (("idle", IDLE_PER_SECOND), ("under_load", PER_SECOND)):
            first, last = last, write_evenly(dsn, last, rate, seconds)
            found[phase] = {**arrivals(conn, first, last), "load_average": load()}
            note(f"{name}, {phase}: {found[phase]}")
        found["refresh_and_wait"] = {"under_load": measure_calls(dsn, last, seconds)}
    with psycopg.connect(dsn, autocommit=True) as conn, run(where, {"scheduler_interval_ms": INTERVAL_MS}, profile):
        wait_for(lambda: is_served(conn), 60, "the scheduler has begun")
        wait_calls(dsn, last + 2_000_000, 1.0)  # the first tick is over
        found["refresh_and_wait"]["alone"] = wait_calls(dsn, last + 3_000_000, seconds / 2)
        note(f"{name}, refresh_and_wait: {found['refresh_and_wait']}")
        modes = conn.execute("SELECT DISTINCT action, engine FROM pgtrickle.pgt_refresh_history").fetchall()
        found["refreshes"] = sorted(f"{action} {engine}" for action, engine in modes)
        wrong = [result for result in verify_tables(dsn, None) if not result.ok]
        if wrong:
            raise SystemExit(f"differs from its query: {wrong[0]}")
    with psycopg.connect(where.postgres.dsn(), autocommit=True) as conn:
        conn.execute(f"DROP DATABASE {name} WITH (FORCE)")
    return found


def measure_cases(seconds: float) -> None:
    with site(track_commit_timestamp="on") as where:
        found = {name: measure_case(where, name, seconds) for name in CASES}
    ok = all(
        case["under_load"]["p50_ms"] <= P50_MS
        and case["under_load"]["p99_ms"] <= P99_MS
        and case["refresh_and_wait"]["under_load"]["after_commit_p99_ms"] <= AFTER_COMMIT_MS
        and case["refresh_and_wait"]["alone"]["max_ms"] < CALL_MS
        for case in found.values()
    )
    report("freshness", ok, commits_per_second=PER_SECOND, tables=TABLES, **found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement of the two cases")
    given = parser.parse_args()
    if not given.probes:
        measure_cases(given.seconds)
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
