"""Databases that mirror the same tables of one origin: the cost of detecting changes, with and without the broker.

Schedulers tick as in the product, in threads of this process, with a pipeline that is done at once; the broker is its
own process. Counted by the server: statements (pg_stat_statements), rows and buffer pages that they read, per tick.
`notice`: from a commit at the origin until the slowest of all schedulers hands the mirror to the pipeline.
`tick_cpu`: of the scheduler that needs most. The broker wakes all of them at once, so by the clock they would wait for
one another here, where they share a process.

Bars: for 10 databases 9.5 x fewer statements, rows and pages; a tick takes no more CPU (1 ms is allowed for), and no
change is noticed later than without (0.2 ticks).
"""

from __future__ import annotations

import argparse
import multiprocessing
import select
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from common.fleet import cpu_seconds, load, memory_mib
from common.harness import note, report

from pgtrickle.capture.install import ensure_capture
from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.ipc.channel import DatabaseSettings, Finished, TableResult
from pgtrickle.ipc.registry import Registry
from pgtrickle.ipc.wake_socket import WakeSocket
from pgtrickle.model.work import SUCCEEDED, QueuedUnit
from pgtrickle.origin.tracker import OriginChangeTracker
from pgtrickle.process import broker_main as brokerprocess
from pgtrickle.process.broker_main import BrokerTask, registry_path
from pgtrickle.scheduler.tick import DatabaseScheduler
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.settings import Sources

PENDING = 2_000  # rows in each buffer that somebody has not read yet
LEAST_REDUCTION = 9.5
IDLE_STATISTICS_SECONDS = 11.0  # sessions without work tell the statistics after 10 s what they read
FAKE_RELID = 2_000_000_000
STATEMENTS = """
SELECT coalesce(sum(calls), 0)::int8, coalesce(sum(shared_blks_hit + shared_blks_read), 0)::int8
FROM pg_stat_statements
WHERE query LIKE '%FROM pgtrickle_changes._broker_counts(%'
"""
ROWS_READ = """
SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::int8
FROM pg_stat_user_tables
WHERE schemaname = 'pgtrickle_changes' AND relname LIKE 'changes_%'
"""


@dataclass(slots=True)
class Link:
    """The pipeline, as far as a tick sees it: what it gets is done at once, and the moment is noted."""

    connection: object = 1
    losses: int = 0
    done: list[Finished] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)

    def open(self, _hello: DatabaseSettings) -> bool:
        return True

    def send(self, _message: object) -> bool:
        return True

    def withdraw(self) -> None:
        """Nothing waits here."""

    def submit(self, jobs: Sequence[QueuedUnit]) -> bool:
        self.taken.append(time.monotonic())
        results = tuple(TableResult(i, "NO_DATA", "ok") for job in jobs for i in job.unit.members)
        self.done.append(Finished(tuple((j.job_id, SUCCEEDED, None, None) for j in jobs), results, datetime.now(UTC)))
        return True

    def receive(self) -> list[Finished]:
        done, self.done = self.done, []
        return done


class Scheduler(threading.Thread):
    """Ticks as the scheduler's process does: by its interval, or when the bell rings."""

    def __init__(self, dsn: str, directory: Path, slot: int, flags: dict[str, object], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._dsn, self._slot, self._halt = dsn, slot, stop
        self._flags = flags
        self._directory = directory
        self.link = Link()
        self.ticks: list[float] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error
            raise

    def _run(self) -> None:
        sources, bell = Sources(flags=self._flags), WakeSocket(self._directory, self._slot)
        registry = Registry(registry_path(self._directory))
        tracker = OriginChangeTracker(self._dsn, (), sources, registry=registry, wake_socket=bell, slot=self._slot)
        with connect(self._dsn, role="scheduler", autocommit=True) as conn:
            link: Any = self.link
            scheduling = DatabaseScheduler(conn, "bench", self._dsn, sources, link, tracker)
            interval = scheduling.settings.scheduler_interval_ms / 1000
            while not self._halt.is_set():
                begun, cpu = time.monotonic(), time.thread_time()
                scheduling.tick()
                self.ticks.append(time.thread_time() - cpu)
                soon = time.monotonic() + max(0.05, scheduling.next_due_time() - time.time())
                left = min(begun + interval, soon) - time.monotonic()
                if left > 0 and select.select([bell], [], [], left)[0]:
                    bell.drain()


@dataclass(frozen=True, slots=True)
class Site:
    """The databases of one measurement."""

    server: EmbeddedPostgres
    origin: str
    relids: tuple[int, ...]
    readers: tuple[str, ...]


def prepare(server: EmbeddedPostgres, databases: int, sources: int) -> Site:
    origin, first = f"origin{databases}", f"reader{databases}_0"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {origin}")
        admin.execute(f"CREATE DATABASE {first}")
    with psycopg.connect(server.dsn(origin), autocommit=True) as conn:
        install(conn)
        conn.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public")
        relids = []
        with connect(server.dsn(origin), role="capture", autocommit=True) as capture:
            for number in range(sources):
                conn.execute(f"CREATE TABLE public.t{number} (id int, v int)")
                row = conn.execute("SELECT %s::regclass::oid::int8", (f"public.t{number}",)).fetchone()
                assert row is not None
                ensure_capture(capture, row[0], [1, 2])
                conn.execute(f"INSERT INTO t{number} SELECT i, i FROM generate_series(1, {PENDING}) AS i")
                relids.append(int(row[0]))
        row = conn.execute("SELECT pgtrickle._origin()").fetchone()
        assert row is not None
    with psycopg.connect(server.dsn(first), autocommit=True) as conn:
        install(conn)
        for number, relid in enumerate(relids):
            conn.execute(
                "WITH made AS (INSERT INTO pgtrickle.pgt_stream_tables (pgt_relid, pgt_name, pgt_schema, "
                "defining_query, original_query, output_columns, schedule, effective_refresh_mode, status, "
                "is_populated, last_refresh_at, created_by) VALUES (%s::int8::oid, %s, 'public', '', '', '[]', "
                "'calculated', 'DIFFERENTIAL', 'ACTIVE', true, now(), current_user) RETURNING pgt_id) "
                "INSERT INTO pgtrickle.pgt_mirrors SELECT pgt_id, %s, '', %s, 'public', %s, %s, '{1}' FROM made",
                (FAKE_RELID + number, f"m{number}", row[0], origin, f"t{number}", relid),
            )
    names = [first]
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        for number in range(1, databases):
            names.append(f"reader{databases}_{number}")
            admin.execute(f"CREATE DATABASE {names[-1]} TEMPLATE {first} STRATEGY wal_log")
    for name in names:  # without this, a copy of a database loads its stream tables again
        with psycopg.connect(server.dsn(name), autocommit=True) as conn:
            conn.execute("UPDATE pgtrickle.pgt_stream_tables SET defined_in = pgtrickle._place()")
    return Site(server, origin, tuple(relids), tuple(names))


@contextmanager
def broker(directory: Path, servers: tuple[str, ...]) -> Iterator[int]:
    """Its process id."""
    task = BrokerTask(directory, Sources(), servers)
    process = multiprocessing.get_context("spawn").Process(target=brokerprocess.main, args=(task,), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        process.terminate()
        process.join(10)


def measure(site: Site, *, is_brokered: bool, ticks: int, interval_ms: int) -> dict[str, Any]:
    interval = interval_ms / 1000
    flags: dict[str, object] = {"scheduler_interval_ms": interval_ms}
    flags["enable_refresh_broker"] = "on" if is_brokered else "off"
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="pgt-") as name:
        directory = Path(name)
        Registry(registry_path(directory), create=True)
        with broker(directory, (site.server.dsn(),)) as pid:
            fleet = [
                Scheduler(site.server.dsn(reader), directory, slot, flags, stop)
                for slot, reader in enumerate(site.readers)
            ]
            for scheduler in fleet:
                scheduler.start()
                time.sleep(interval / len(fleet))  # their ticks are spread over the interval
            try:
                settle(fleet, interval)
                cpu = cpu_seconds(pid) or 0.0
                found = observe(site, fleet, ticks, interval)
                percent = ((cpu_seconds(pid) or 0.0) - cpu) / (found["ticks"] * interval) * 100
                return {**found, "broker": {"cpu_percent": round(percent, 2), **memory_mib(pid)}}
            finally:
                stop.set()
                for scheduler in fleet:
                    scheduler.join(10)


def settle(fleet: Sequence[Scheduler], interval: float) -> None:
    """Until nobody has found anything for some ticks."""
    deadline, quiet = time.monotonic() + 120, time.monotonic()
    seen = -1
    while time.monotonic() - quiet < 6 * interval:
        if any(s.failure for s in fleet) or time.monotonic() > deadline:
            raise SystemExit("the schedulers did not come to rest")
        if (now := sum(len(s.link.taken) for s in fleet)) != seen:
            seen, quiet = now, time.monotonic()
        time.sleep(0.1)
    time.sleep(IDLE_STATISTICS_SECONDS)


def observe(site: Site, fleet: Sequence[Scheduler], ticks: int, interval: float) -> dict[str, Any]:
    notices: list[float] = []
    with psycopg.connect(site.server.dsn(site.origin), autocommit=True) as conn:

        def counters() -> tuple[int, int, int]:
            calls, pages = conn.execute(STATEMENTS).fetchone() or (0, 0)
            (rows,) = conn.execute(ROWS_READ).fetchone() or (0,)
            return calls, rows, pages

        for scheduler in fleet:
            scheduler.ticks.clear()
        before, begun = counters(), time.monotonic()
        while time.monotonic() - begun < ticks * interval:
            time.sleep(interval * 2.37)  # so that commits fall anywhere between two ticks
            marks = [len(s.link.taken) for s in fleet]
            conn.execute("INSERT INTO t0 VALUES (0, 0)")
            committed = time.monotonic()
            while any(len(s.link.taken) == mark for s, mark in zip(fleet, marks, strict=True)):
                if time.monotonic() - committed > 30:
                    raise SystemExit("a change was not noticed")
                time.sleep(0.005)
            found = max(s.link.taken[mark] for s, mark in zip(fleet, marks, strict=True))
            notices.append(found - committed)
        elapsed = (time.monotonic() - begun) / interval
        time.sleep(1.5)  # sessions tell the statistics once a second
        after = counters()
    per_tick = [round((b - a) / elapsed, 2) for a, b in zip(before, after, strict=True)]
    return {
        **dict(zip(("statements", "rows", "pages"), per_tick, strict=True)),
        "notice_s": {"median": round(statistics.median(notices), 3), "most": round(max(notices), 3)},
        "tick_cpu_ms": round(max(statistics.median(s.ticks) for s in fleet) * 1000, 2),
        "changes": len(notices),
        "ticks": round(elapsed, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=40)
    parser.add_argument("--interval-ms", type=int, default=1000)
    parser.add_argument("--small", action="store_true", help="10 databases x 5 sources only")
    given = parser.parse_args()
    settings = {"shared_preload_libraries": "pg_stat_statements", "max_connections": "300", "shared_buffers": "256MB"}
    figures: dict[str, Any] = {"load_before": load()}
    failed = []
    with EmbeddedPostgres.create(durable=False, settings=settings) as server:
        for databases, sources in ((10, 5),) if given.small else ((10, 5), (50, 20)):
            site = prepare(server, databases, sources)
            found = {}
            for name, is_brokered in (("without", False), ("with", True)):
                found[name] = measure(site, is_brokered=is_brokered, ticks=given.ticks, interval_ms=given.interval_ms)
                note(f"{databases} x {sources} {name} the broker: {found[name]}")
            direct, shared = found["without"], found["with"]
            reduction = {
                what: round(direct[what] / max(shared[what], 0.01), 1) for what in ("statements", "rows", "pages")
            }
            figures[f"{databases}x{sources}"] = {**found, "reduction": reduction}
            if min(reduction.values()) < LEAST_REDUCTION:
                failed.append(f"{databases} databases: {reduction}")
            if shared["tick_cpu_ms"] > direct["tick_cpu_ms"] + 1.0:
                failed.append(f"{databases} databases: ticks take more CPU")
            if shared["notice_s"]["median"] > direct["notice_s"]["median"] + 0.2 * given.interval_ms / 1000:
                failed.append(f"{databases} databases: changes are noticed later")
    report("broker", not failed, **figures, load_after=load(), failed=failed)


if __name__ == "__main__":
    main()
