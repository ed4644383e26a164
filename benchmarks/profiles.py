"""The profiles of the scaling guide: what each does to freshness, work and memory.

60 stream tables, 100 commits per second, one row each, for every profile in turn, and without one. Half of the stream
tables are projections: the server's commit timestamps of a row and of the refresh that brought it are compared. The
changes are few, so there is no Spark server. Bars: every row arrives, every stream table is right, and there are never
more sessions than the budget says (maintain/budget.py).
"""

from __future__ import annotations

import argparse
import threading
import time
from typing import Any

import psycopg
from common.fleet import Site, load, memory_mib, run, site, wait_for
from common.harness import note, percentile, report

from pgtrickle.db.install import install
from pgtrickle.maintain.budget import budget
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.settings import Sources

PROFILES = (None, "low-latency", "high-throughput", "resource-constrained")
TABLES, PER_SECOND = 60, 100
ARRIVED = """
SELECT 1000 * extract(epoch FROM pg_xact_commit_timestamp(s.xmin) - pg_xact_commit_timestamp(t.xmin))::float8
FROM t{n} AS t JOIN s{n} AS s USING (id) WHERE t.id > 0
"""
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgtrickle/%'"
REFRESHES = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'COMPLETED'"


def prepare(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        install(conn)
        for number in range(TABLES):
            conn.execute(f"CREATE TABLE t{number} (id bigint PRIMARY KEY, g int NOT NULL, v int NOT NULL)")
            conn.execute(f"INSERT INTO t{number} SELECT -i, i % 50, i FROM generate_series(1, 1000) AS i")
            query = f"SELECT g, count(*) AS n, sum(v) AS total FROM t{number} GROUP BY g"
            if number < TABLES // 2:
                query = f"SELECT id, v * 2 AS twice FROM t{number}"
            conn.execute("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated')", (f"s{number}", query))


def one(conn: psycopg.Connection[Any], text: str) -> Any:
    row = conn.execute(text).fetchone()
    assert row is not None
    return row[0]


def write(dsn: str, first: int, seconds: float) -> int:
    begun, number = time.perf_counter(), first
    with psycopg.connect(dsn, autocommit=True) as conn:
        while (at := begun + (number - first) / PER_SECOND) < begun + seconds:
            time.sleep(max(0.0, at - time.perf_counter()))
            conn.execute(f"INSERT INTO t{number % TABLES} VALUES (%s, %s, 1)", (number, number % 50))
            number += 1
    return number


def most_sessions(dsn: str, stop: threading.Event, most: list[int]) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not stop.wait(0.5):
            most[0] = max(most[0], one(conn, SESSIONS))


def measure(where: Site, profile: str | None, seconds: float) -> dict[str, Any]:
    name = "none" if profile is None else profile
    with psycopg.connect(where.postgres.dsn(), autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}"')
    dsn = where.postgres.dsn(name)
    prepare(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn, run(where, {}, profile) as running:
        loaded = "SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables"
        wait_for(lambda: one(conn, loaded), 180, "all stream tables are loaded")
        first = write(dsn, 1, 5.0)  # templates get compiled
        time.sleep(3.0)
        conn.execute("".join(f"DELETE FROM t{n} WHERE id > 0;" for n in range(TABLES)).encode())
        empty = " AND ".join(f"NOT EXISTS (SELECT FROM s{n} WHERE id > 0)" for n in range(TABLES // 2))
        wait_for(lambda: one(conn, f"SELECT {empty}"), 60, "the rows are gone")
        stop, most = threading.Event(), [0]
        looking = threading.Thread(target=most_sessions, args=(dsn, stop, most))
        looking.start()
        before, done = running.cpu(), one(conn, REFRESHES)
        last = write(dsn, first, seconds)
        after, done = running.cpu(), one(conn, REFRESHES) - done
        expected = sum(1 for i in range(first, last) if i % TABLES < TABLES // 2)
        counted = " + ".join(f"(SELECT count(*) FROM s{n} WHERE id > 0)" for n in range(TABLES // 2))
        wait_for(lambda: one(conn, f"SELECT {counted}") == expected, 60, "all rows arrive")
        stop.set()
        looking.join()
        times = [t for n in range(TABLES // 2) for (t,) in conn.execute(ARRIVED.format(n=n)).fetchall()]
        spent = sum(seconds_of - before.get(pid, 0.0) for pid, seconds_of in after.items())
        settings = Sources(profile=profile).load().settings
        figures = {
            "p50_ms": percentile(times, 0.5),
            "p99_ms": percentile(times, 0.99),
            "refreshes_per_second": round(done / seconds, 1),
            "cores": round(spent / seconds, 2),
            "sessions": most[0],
            "budget": budget(settings, {name: settings}, load_parts=0).total.connections,
            "mib": round(sum(memory_mib(pid)["pss"] for pid in running.kinds())),
            "load_average": load(),
        }
        wrong = [result for result in verify_tables(dsn, None) if not result.ok]
        if wrong:
            raise SystemExit(f"differs from its query: {wrong[0]}")
    with psycopg.connect(where.postgres.dsn(), autocommit=True) as conn:
        conn.execute(f'DROP DATABASE "{name}" WITH (FORCE)')  # the next run would serve it, too
    note(f"{name}: {figures}")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with site(spark=False, track_commit_timestamp="on") as where:
        found = {profile or "none": measure(where, profile, given.seconds) for profile in PROFILES}
    ok = all(figures["sessions"] <= figures["budget"] for figures in found.values())
    report("profiles", ok, tables=TABLES, commits_per_second=PER_SECOND, profiles=found)


if __name__ == "__main__":
    main()
