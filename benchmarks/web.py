"""A thousand stream tables in the web UI of a running control plane: how long pages take, and what they cost others.

One database, ten stream tables per source, whose sources are written to all the time. `page`: the median of five
requests more than a second apart, so that each reads the database anew. `cost`: CPU of the scheduler and the workers,
and the time from a commit to the end of the refresh, without viewers and with some, alternately: each viewer has a page
open, which follows the fleet by live updates.

Bars: each page within one second; with viewers, the median of the scheduler's CPU at most 1.1 times as much, or half a
percent of a core more.
"""

from __future__ import annotations

import argparse
import http.client
import random
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import psycopg
from common.fleet import Run, Site, load, run, site, wait_for
from common.harness import note, report

from pgtrickle.db.install import install

PAGES = (
    "/",
    "/tables",
    "/graph",
    "/workers",
    "/sources",
    "/alerts",
    "/settings",
    "/tables/bench/public/s1",
    "/metrics",
)
VIEWED = ("/", "/graph", "/tables", "/tables/bench/public/s1")
LONGEST_SECONDS = 1.0
MOST_RATIO, MOST_MORE_PERCENT = 1.1, 0.5
ROUNDS = 3
PAUSE_SECONDS = 0.1  # between two commits
SCHEDULERS = "SELECT pid FROM pgtrickle.server_worker_inventory WHERE kind = 'scheduler'"
REFRESHES = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM end_time - start_time)) * 1000, count(*)
FROM pgtrickle.pgt_refresh_history
WHERE end_time > now() - %s * interval '1 s' AND action = 'DIFFERENTIAL' AND status = 'COMPLETED'
"""


def prepare(where: Site, tables: int) -> str:
    with psycopg.connect(where.postgres.dsn(), autocommit=True) as conn:
        conn.execute("CREATE DATABASE bench")
    dsn = where.postgres.dsn("bench")
    with psycopg.connect(dsn) as conn:
        install(conn)
        sources = max(1, tables // 10)
        for n in range(sources):
            conn.execute(f"CREATE TABLE t{n} (k int PRIMARY KEY, v int)")
        begun = time.monotonic()
        for n in range(tables):
            query = f"SELECT k, v + {n} AS v FROM t{n % sources}"
            conn.execute("SELECT pgtrickle.create_stream_table(%s, %s, '1s')", (f"s{n}", query))
    note(f"{tables} stream tables created in {time.monotonic() - begun:.1f} s")
    return dsn


def loaded(dsn: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute("SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables").fetchone()
    return row is not None and bool(row[0])


@contextmanager
def writing(dsn: str, sources: int) -> Iterator[None]:
    stop, rng = threading.Event(), random.Random(3)

    def write() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            number = 0
            while not stop.wait(PAUSE_SECONDS):
                number += 1
                conn.execute(f"INSERT INTO t{rng.randrange(sources)} VALUES (%s, 1)", (number,))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def get(port: int, path: str) -> tuple[float, int]:
    """Seconds and bytes."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"accept": "text/html"})
    answer = connection.getresponse()
    size = len(answer.read())
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: status {answer.status}")
    return time.perf_counter() - begun, size


def pages(port: int) -> dict[str, int]:
    found = {}
    for page in PAGES:
        times, size = [], 0
        for _ in range(5):
            time.sleep(1.1)  # the state of the last request is too old then
            seconds, size = get(port, page)
            times.append(seconds)
        found[page] = round(statistics.median(times) * 1000)
        note(f"{page}: {found[page]} ms, {size / 1000:.0f} kB")
    return found


@contextmanager
def viewers(port: int) -> Iterator[None]:
    """Browsers with a page open each."""
    opened: list[socket.socket] = []
    stop = threading.Event()

    def view(path: str) -> None:
        conn = socket.create_connection(("127.0.0.1", port))
        opened.append(conn)
        conn.sendall(f"GET /events?for={quote(path, safe='')} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        while not stop.is_set() and conn.recv(1 << 16):
            pass

    threads = [threading.Thread(target=view, args=(path,), daemon=True) for path in VIEWED]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for conn in opened:
            conn.close()


def cost(running: Run, dsn: str, seconds: float) -> dict[str, float]:
    """Percent of a core by kind of process, and the median duration of refreshes."""
    before, begun = running.cpu(), time.monotonic()
    time.sleep(seconds)
    after, elapsed = running.cpu(), time.monotonic() - begun
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(REFRESHES, (seconds,)).fetchone()
        schedulers = {pid for (pid,) in conn.execute(SCHEDULERS)}
    assert row is not None
    found: dict[str, float] = {}
    for pid, kind in running.kinds().items():
        if kind == "scheduler" and pid not in schedulers:
            kind = "web"  # a child of the fork server, too
        if kind in ("scheduler", "pipeline", "web"):
            found[kind] = found.get(kind, 0.0) + (after[pid] - before.get(pid, 0.0)) / elapsed * 100
    found["refresh ms"], found["refreshes"] = float(row[0] or 0.0), row[1]
    return {name: round(value, 2) for name, value in found.items()}


def costs(running: Run, dsn: str, port: int, seconds: float) -> dict[str, dict[str, float]]:
    """Medians of several rounds, alternately."""
    rounds: dict[str, list[dict[str, float]]] = {"alone": [], "viewed": []}
    for _ in range(ROUNDS):
        rounds["alone"].append(cost(running, dsn, seconds))
        with viewers(port):
            time.sleep(2)
            rounds["viewed"].append(cost(running, dsn, seconds))
        note(f"alone {rounds['alone'][-1]}, with {len(VIEWED)} viewers {rounds['viewed'][-1]}, load average {load()}")
    return {
        kind: {name: statistics.median(one.get(name, 0.0) for one in all_) for name in all_[0]}
        for kind, all_ in rounds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15, help="of each measurement of costs")
    given = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with site() as where:
        dsn = prepare(where, given.tables)
        with run(where, {"http": f"127.0.0.1:{port}", "engine": "postgres"}) as running:
            begun = time.monotonic()
            wait_for(lambda: loaded(dsn), 600, "all are loaded")
            note(f"loaded in {time.monotonic() - begun:.0f} s")
            with writing(dsn, max(1, given.tables // 10)):
                time.sleep(5)
                times = pages(port)
                found = costs(running, dsn, port, given.seconds)
    more = found["viewed"]["scheduler"], found["alone"]["scheduler"]
    is_cheap = more[0] <= max(more[1] * MOST_RATIO, more[1] + MOST_MORE_PERCENT)
    ok = max(times.values()) <= LONGEST_SECONDS * 1000 and is_cheap
    values: dict[str, Any] = {"tables": given.tables, "page_ms": times, "cost": found, "load_average": load()}
    report("web", ok, **values)


if __name__ == "__main__":
    main()
