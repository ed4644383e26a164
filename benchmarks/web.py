"""A thousand stream tables in the web UI: how long its pages take, and what a look costs the server.

One database, ten stream tables per source, five refreshes in the history of each. `page`: the median of five requests;
each reads the database anew. `look`: reading the state of the database, without rendering.

Bar: each page within one second.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import tempfile
import threading
import time
from pathlib import Path

from common.harness import note, report

from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.ipc.fleet_memory import FleetMemory, ProcessState
from pgtrickle.observe.database import DatabaseAddress
from pgtrickle.observe.fleet import FleetObserver
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.settings import Settings, Sources
from pgtrickle.web.listen import listen
from pgtrickle.web.server import serve

PAGES = ("/", "/tables", "/graph", "/workers", "/sources", "/alerts", "/tables/bench/public/s1", "/metrics")
LONGEST_SECONDS = 1.0
HISTORY = """
INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, data_timestamp, start_time, end_time, action, status, engine,
    rows_inserted, rows_deleted, delta_row_count, timings)
SELECT st.pgt_id, now(), now() - n * interval '1 s', now() - n * interval '1 s' + interval '0.1 s', 'DIFFERENTIAL',
    'COMPLETED', 'spark', 5, 5, 10, '{"read": 50, "spark": 30}'
FROM pgtrickle.pgt_stream_tables AS st CROSS JOIN generate_series(1, 5) AS n
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    tables = parser.parse_args().tables
    with EmbeddedPostgres.create(durable=False) as server, tempfile.TemporaryDirectory() as directory:
        with connect(server.dsn(), role="bench", autocommit=True, as_service=False) as conn:
            conn.execute("CREATE DATABASE bench")
        dsn = server.dsn("bench")
        with connect(dsn, role="bench", autocommit=True, as_service=False) as conn:
            conn.execute("SET search_path = public")
            install(conn)
            sources = max(1, tables // 10)
            for n in range(sources):
                conn.execute(f"CREATE TABLE t{n} (k int, v int)")
            begun = time.monotonic()
            for n in range(tables):
                conn.execute(
                    f"SELECT pgtrickle.create_stream_table('s{n}', 'SELECT k, v + {n} AS v FROM t{n % sources}', '1m')"
                )
            note(f"{tables} stream tables created in {time.monotonic() - begun:.1f} s")
            conn.execute(HISTORY)
            conn.execute("ANALYZE")
        found, ok = measure(dsn, Path(directory), tables)
    report("web", ok, **found)


def measure(dsn: str, directory: Path, tables: int) -> tuple[dict[str, object], bool]:
    memory = FleetMemory(directory / "memory", create=True)
    memory.write_processes([ProcessState("launcher", 1, "ACTIVE", 0.0)])
    observer = FleetObserver(memory, Sources())
    observer.set_databases([DatabaseAddress("bench", "bench", "here", dsn)])
    stop = threading.Event()
    with listen("127.0.0.1:0", "") as listener:
        thread = threading.Thread(target=serve, args=(observer, Settings(), listener, stop))
        thread.start()
        try:
            return looked_at(observer, listener.getsockname()[1], tables)
        finally:
            stop.set()
            thread.join(10)
            observer.close()


def looked_at(observer: FleetObserver, port: int, tables: int) -> tuple[dict[str, object], bool]:
    found: dict[str, object] = {"tables": tables}
    slowest = 0.0
    for page in PAGES:
        times, size = [], 0
        for _ in range(5):
            time.sleep(1.1)  # the state of the last request is too old then
            begun = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", page, headers={"accept": "text/html"})
            answer = connection.getresponse()
            size = len(answer.read())
            assert answer.status == 200, (page, answer.status)
            connection.close()
            times.append(time.perf_counter() - begun)
        median = statistics.median(times)
        slowest = max(slowest, median)
        note(f"{page}: {median * 1000:.0f} ms, {size / 1000:.0f} kB")
        found[f"page {page} ms"] = round(median * 1000)
    looks = []
    for _ in range(5):
        begun = time.perf_counter()
        observer.read(0.0)
        looks.append(time.perf_counter() - begun)
    found["look ms"] = round(statistics.median(looks) * 1000)
    return found, slowest <= LONGEST_SECONDS


if __name__ == "__main__":
    main()
