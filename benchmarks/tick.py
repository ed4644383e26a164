"""What a scheduler's tick costs while nothing is due, by the number of stream tables; and what a definition costs.

CPU of our process, not of PostgreSQL, which has one statement per tick to answer whatever the number of stream tables.
`waiting`: all have changes and wait for their time. `quiet`: none has changes.

Bars: a tick over 1,000 stream tables < 1 ms (median), at most 20 x that over 100,000; while the graph of 100,000 is
built anew, ticks go on (the longest pause between two of them < 1 s).
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from common.fleet import load, memory_mib
from common.harness import note, python_unit_ms, report

from pgtrickle.capture.install import ensure_capture
from pgtrickle.db.connect import Connection, connect
from pgtrickle.db.install import install
from pgtrickle.ipc.channel import DatabaseSettings, Finished, TableResult
from pgtrickle.model.work import SUCCEEDED, QueuedUnit
from pgtrickle.scheduler.tick import DatabaseScheduler
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.settings import Sources

SIZES = (1_000, 10_000, 100_000)
SOURCES = 50
MOST_CPU_MS = 1.0
MOST_GROWTH = 20.0
MOST_PAUSE_S = 1.0
MOST_FIRST_TICKS = 1_000
FAKE_RELID = 2_000_000_000  # storage tables need not exist for a tick
# Every tenth reads the one before it and a source, the others one or two sources.
ROWS = f"""
WITH made AS (
    INSERT INTO pgtrickle.pgt_stream_tables (pgt_relid, pgt_name, pgt_schema, defining_query, original_query,
        output_columns, schedule, effective_refresh_mode, status, is_populated, last_refresh_at, created_by, defined_in)
    SELECT ({FAKE_RELID} + i)::oid, 's' || i, 'public', '', '', '[]', %(schedule)s, 'DIFFERENTIAL', 'ACTIVE', true,
        now(), current_user, pgtrickle._place()
    FROM generate_series(%(first)s::int8, %(last)s::int8) AS i
    RETURNING pgt_id, pgt_relid
), captured AS (
    SELECT source_relid, row_number() OVER (ORDER BY source_relid) - 1 AS nth, count(*) OVER () AS many
    FROM pgtrickle.pgt_sources
)
INSERT INTO pgtrickle.pgt_dependencies (pgt_id, source_relid, source_type)
SELECT m.pgt_id, c.source_relid, 'TABLE'
FROM made AS m JOIN captured AS c ON (m.pgt_id - c.nth) %% c.many = 0 OR (
    m.pgt_id %% 2 = 0 AND (m.pgt_id / 2 - c.nth) %% c.many = 0)
UNION ALL
SELECT m.pgt_id, (m.pgt_relid::int8 - 1)::oid, 'STREAM_TABLE' FROM made AS m
WHERE m.pgt_id %% 10 = 0 AND m.pgt_relid::int8 > {FAKE_RELID} + 1
"""


class Link:
    """The pipeline, as far as a tick sees it: what it gets is done at once."""

    def __init__(self) -> None:
        self.is_open = True
        self.losses = 0
        self.done: list[Finished] = []
        self.units = 0

    def open(self, _hello: DatabaseSettings) -> bool:
        return True

    def send(self, _message: object) -> bool:
        return True

    def withdraw(self) -> None:
        """Nothing waits here."""

    def submit(self, jobs: Sequence[QueuedUnit]) -> bool:
        self.units += len(jobs)
        results = tuple(TableResult(i, "NO_DATA", "ok") for job in jobs for i in job.unit.members)
        self.done.append(Finished(tuple((j.job_id, SUCCEEDED, None, None) for j in jobs), results, datetime.now(UTC)))
        return True

    def receive(self) -> list[Finished]:
        done, self.done = self.done, []
        return done


def prepare(dsn: str, sources: int) -> None:
    with psycopg.connect(dsn) as conn:
        install(conn)
    with psycopg.connect(dsn, autocommit=True) as conn, connect(dsn, role="capture", autocommit=True) as capture:
        for number in range(sources):
            conn.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, v int)")
            row = conn.execute("SELECT %s::regclass::oid::int8", (f"t{number}",)).fetchone()
            assert row is not None
            ensure_capture(capture, row[0], [1, 2])


def grow(dsn: str, first: int, last: int, schedule: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(ROWS, {"schedule": schedule, "first": first, "last": last})
        conn.execute("ANALYZE pgtrickle.pgt_stream_tables, pgtrickle.pgt_dependencies")


def reschedule(dsn: str, schedule: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("UPDATE pgtrickle.pgt_stream_tables SET schedule = %s, last_refresh_at = now()", (schedule,))
        conn.execute("VACUUM ANALYZE pgtrickle.pgt_stream_tables")


def opened(conn: Connection, dsn: str) -> tuple[DatabaseScheduler, Link]:
    link = Link()
    return DatabaseScheduler(conn, "bench", dsn, Sources(), link), link  # type: ignore[arg-type]


def turn(scheduling: DatabaseScheduler) -> None:
    scheduling.tick()
    scheduling.next_due_time()


def measure(dsns: Sequence[str], ticks: int) -> dict[str, Any]:
    """All schedulers in one process: what counts is the CPU of all of them."""
    figures: dict[str, Any] = {}
    before_mib = memory_mib(os.getpid())["rss"]
    for name, schedule in (("waiting", "1h"), ("quiet", "calculated")):
        for dsn in dsns:
            reschedule(dsn, schedule)
        begun, wall = time.process_time(), time.perf_counter()
        conns = [connect(dsn, role="scheduler", autocommit=True) for dsn in dsns]
        fleet = [opened(conn, dsn) for conn, dsn in zip(conns, dsns, strict=True)]
        figures["load_cpu_s"] = round(time.process_time() - begun, 2)
        figures["load_s"] = round(time.perf_counter() - wall, 2)
        if name == "waiting":
            figures["more_mib"] = round(memory_mib(os.getpid())["rss"] - before_mib, 1)
        begun = time.process_time()
        for scheduling, link in fleet:
            before = -1
            for _ in range(MOST_FIRST_TICKS):  # until everything has been checked once
                if link.units == before:
                    break
                before = link.units
                scheduling.tick()
                scheduling.tick()
            else:
                raise SystemExit(f"after {2 * MOST_FIRST_TICKS} ticks tables are still due: {link.units} units")
            for _ in range(6):
                turn(scheduling)  # the driver prepares a statement that it sees often
        if name == "quiet":
            figures["first_turns_cpu_s"] = round(time.process_time() - begun, 2)
        found, wall = [], time.perf_counter()
        for _ in range(ticks):
            begun = time.process_time()
            for scheduling, _ in fleet:
                turn(scheduling)
            found.append((time.process_time() - begun) * 1000)
        figures[f"{name}_wall_ms"] = round((time.perf_counter() - wall) * 1000 / ticks, 2)
        figures[f"{name}_cpu_ms"] = round(statistics.median(found), 3)
        figures[f"{name}_cpu_p90_ms"] = round(sorted(found)[int(len(found) * 0.9)], 3)
        if name == "quiet" and len(fleet) == 1:
            figures |= define(dsns[0], *fleet[0])
        for conn in conns:
            conn.close()
    return figures


def define(dsn: str, scheduling: DatabaseScheduler, link: Link) -> dict[str, float]:
    """One definition more: how long ticks stop for, and when it is known."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        before, cpu = link.units, time.process_time()
        conn.execute(ROWS, {"schedule": "calculated", "first": 900_000, "last": 900_000})
        conn.execute("SELECT pgtrickle._wake('create', max(pgt_id)) FROM pgtrickle.pgt_stream_tables")
        begun = last = time.perf_counter()
        pause, ticks = 0.0, 0
        while link.units == before:
            turn(scheduling)
            now = time.perf_counter()
            pause, last = max(pause, now - last), now
            ticks += 1
            time.sleep(0.01)
        seconds = time.perf_counter() - begun
        conn.execute("DELETE FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 's900000'")
        return {
            "definition_s": round(seconds, 3),
            "definition_cpu_s": round(time.process_time() - cpu, 3),
            "definition_ticks": ticks,
            "definition_pause_s": round(pause, 3),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--databases", type=int, default=50)
    parser.add_argument("--ticks", type=int, default=200)
    given = parser.parse_args()
    one: dict[int, dict[str, Any]] = {}
    many: dict[int, dict[str, Any]] = {}
    settings = {"shared_buffers": "512MB", "max_connections": "300", "synchronous_commit": "off"}
    with EmbeddedPostgres.create(durable=False, settings=settings) as postgres:
        names = [f"many{i}" for i in range(given.databases)]
        with psycopg.connect(postgres.dsn(), autocommit=True) as conn:
            conn.execute("CREATE DATABASE one")
            conn.execute(f"CREATE DATABASE {names[0]}")
            prepare(postgres.dsn("one"), SOURCES)
            prepare(postgres.dsn(names[0]), SOURCES // 10)
            for name in names[1:]:
                conn.execute(f"CREATE DATABASE {name} TEMPLATE {names[0]}")
        there = 0
        for size in given.sizes:
            grow(postgres.dsn("one"), there + 1, size, "1h")
            one[size] = measure([postgres.dsn("one")], given.ticks)
            note(f"{size} in one database: {one[size]}; load average {load()}")
            dsns = [postgres.dsn(name) for name in names]
            for dsn in dsns:
                grow(dsn, there // len(names) + 1, size // len(names), "1h")
            many[size] = measure(dsns, max(3, given.ticks // 10))
            note(f"{size} in {len(names)} databases: {many[size]}; load average {load()}")
            there = size
    small, large = one[min(one)], one[max(one)]
    growth = {name: round(large[f"{name}_cpu_ms"] / small[f"{name}_cpu_ms"], 1) for name in ("waiting", "quiet")}
    ok = (
        max(small["waiting_cpu_ms"], small["quiet_cpu_ms"]) < MOST_CPU_MS
        and max(growth.values()) <= MOST_GROWTH
        and large["definition_pause_s"] < MOST_PAUSE_S
    )
    figures = {"growth": growth, "python_unit_ms": python_unit_ms(), "one_database": one, "databases": many}
    report("tick", ok, load_average=load(), **figures)


if __name__ == "__main__":
    main()
