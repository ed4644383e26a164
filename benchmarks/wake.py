"""What waking the scheduler costs the writers: commits per second of 16 sessions that insert single rows.

* `silent`: no scheduler waits, and no writer notifies
* `asked`: a scheduler that wants to know of every change, as for IMMEDIATE: it asks, is notified, looks, asks again
* `always`: every transaction notifies, as without the lock that says whether a scheduler waits

Commits are flushed, so that the server can write several at a time, which NOTIFY prevents. The variants take short
turns; medians. Bar: `asked` has at least 90 % of the throughput of `silent`.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from common.harness import note, report

from pgtrickle.capture.detect import Detector
from pgtrickle.capture.install import ensure_capture
from pgtrickle.capture.trigger import WAKE_CHANNEL, WAKE_LOCK
from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.model.flow import Cut
from pgtrickle.process.tick_pace import debounce_left, debounce_time
from pgtrickle.process.writer_signal import WriterSignal
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.settings import Settings

WRITERS = 16
BAR = 0.9
NOWHERE = Cut(0, 0, ())


@dataclass
class Watching:
    """What the signal asks a scheduler for. Any change would make a table due."""

    settings: Settings = field(default_factory=Settings)

    def next_wake_time(self) -> float:
        return 0.0


def prepare(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int)")
        row = conn.execute("SELECT 't'::regclass::oid::int8").fetchone()
    assert row is not None
    with connect(dsn, role="bench") as conn:
        install(conn)
    with connect(dsn, role="bench", autocommit=True) as conn:
        ensure_capture(conn, row[0], [1, 2])
    return int(row[0])


def throughput(dsn: str, seconds: float) -> float:
    """Commits per second of all writers."""
    counts, go, stop = [0] * WRITERS, threading.Barrier(WRITERS + 1), threading.Event()

    def write(number: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("INSERT INTO t (v) VALUES (1)", prepare=True)
            go.wait()
            while not stop.is_set():
                conn.execute("INSERT INTO t (v) VALUES (1)", prepare=True)
                counts[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    go.wait()
    begun = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begun)


@contextmanager
def asking(dsn: str, relid: int, looks: list[int]) -> Iterator[None]:
    """The steps of a scheduler without refreshes in progress: see SchedulerProcess._sleep."""
    stop = threading.Event()

    def schedule() -> None:
        watching = Watching()
        debounce = debounce_time(watching.settings.wake_debounce_ms / 1000, in_flight=0)
        with connect(dsn, role="scheduler", autocommit=True) as conn:
            conn.execute(f"LISTEN {WAKE_CHANNEL}")
            signal, detector, cut = WriterSignal(conn), Detector([relid]), NOWHERE
            while not stop.is_set():
                begun = time.monotonic()
                signal.acquire(watching)  # type: ignore[arg-type]
                detected = detector.detect(conn, cut)
                cut = detected.cut
                looks[0] += 1
                if detected.changed:
                    signal.note_changes()
                poll_in = signal.seconds_left(watching)  # type: ignore[arg-type]
                left = min(0.2, max(poll_in, debounce_left(begun, time.monotonic(), debounce)))
                if list(conn.notifies(timeout=max(0.0, left), stop_after=1)):
                    signal.release()
                    stop.wait(debounce_left(begun, time.monotonic(), debounce))
                    list(conn.notifies(timeout=0))

    thread = threading.Thread(target=schedule)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def holding(dsn: str) -> Iterator[None]:
    """The lock is never released, so every writer notifies; somebody listens, as a scheduler does."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"LISTEN {WAKE_CHANNEL}")
        conn.execute("SELECT pg_advisory_lock(%s)", (WAKE_LOCK,))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5)
    given = parser.parse_args()
    found: dict[str, list[float]] = {"silent": [], "asked": [], "always": []}
    looks = [0]
    with EmbeddedPostgres.create(durable=True) as server:
        dsn = server.dsn()
        relid = prepare(dsn)
        throughput(dsn, given.seconds)
        for number in range(given.rounds):
            found["silent"].append(throughput(dsn, given.seconds))
            with asking(dsn, relid, looks):
                found["asked"].append(throughput(dsn, given.seconds))
            with holding(dsn):
                found["always"].append(throughput(dsn, given.seconds))
            note(f"round {number + 1}: " + ", ".join(f"{name} {by[-1]:,.0f}" for name, by in found.items()))
            with psycopg.connect(dsn, autocommit=True) as conn:
                conn.execute(f"TRUNCATE t, pgtrickle_changes.changes_{relid}")
    rates = {name: statistics.median(by) for name, by in found.items()}
    share = statistics.median(a / b for a, b in zip(found["asked"], found["silent"], strict=True))
    report(
        "wake",
        share >= BAR,
        commits_per_second={name: round(rate) for name, rate in rates.items()},
        asked_share=round(share, 3),
        always_share=round(rates["always"] / rates["silent"], 3),
        looks_per_second=round(looks[0] / (given.rounds * given.seconds), 1),
    )


if __name__ == "__main__":
    main()
