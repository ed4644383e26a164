"""What connection_pooler_mode costs: a small refresh, and a quiet look, in each mode, without a pooler in between.

python -m benchmarks.pooled [rounds]
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import psycopg

from pgtrickle.capture.detect import Detector
from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.model.flow import Cut
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.process.local_control_plane import LocalControlPlane
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings, Sources

MODES = ("off", "session", "transaction")


def main(rounds: int) -> None:
    spark = SparkServer.start(Settings(spark_driver_memory_mb=1024))
    try:
        spark.wait_ready(120)
        engine = SparkEngine(lambda: spark.url)
        with EmbeddedPostgres.create(durable=False) as server:
            report = measure(server, engine, rounds)
        engine.close()
    finally:
        spark.stop()
    print(json.dumps(report))


def measure(server: EmbeddedPostgres, engine: SparkEngine, rounds: int) -> dict[str, object]:
    dsn = server.dsn()
    with psycopg.connect(dsn, autocommit=True) as conn:
        install(conn)
        conn.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        conn.execute("INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 1000) AS i")
        conn.execute(
            "SELECT pgtrickle.create_stream_table('s', 'SELECT b, count(*) AS n, sum(a) AS total FROM t GROUP BY b', "
            "'calculated', 'DIFFERENTIAL')"
        )
        planes = {
            m: LocalControlPlane("bench", dsn, engine, Sources(flags={"connection_pooler_mode": m})) for m in MODES
        }
        controls = {m: connect(dsn, role="bench", autocommit=True, pooler=m) for m in MODES}
        refresh: dict[str, list[float]] = {m: [] for m in MODES}
        look: dict[str, list[float]] = {m: [] for m in MODES}
        (relid,) = conn.execute("SELECT 't'::regclass::oid::int8").fetchone() or (0,)
        for number in range(rounds + 10):  # the modes take turns, so that all have the same company
            for mode in MODES:
                conn.execute(f"UPDATE t SET b = (b + 1) % 10 WHERE a = {1 + number % 1000}")
                took = timed(planes[mode].tick)
                detector = Detector([relid])
                quiet = timed(lambda c=controls[mode], d=detector: d.detect(c, Cut(1 << 40, 1 << 40, ())))  # type: ignore[misc]
                if number >= 10:
                    refresh[mode].append(took)
                    look[mode].append(quiet)
        for plane in planes.values():
            plane.close()
        for control in controls.values():
            control.close()
    return {
        "refresh_ms": {m: round(statistics.median(v), 2) for m, v in refresh.items()},
        "look_ms": {m: round(statistics.median(v), 3) for m, v in look.items()},
        "refresh_ratio": {m: ratio(refresh, m) for m in MODES},
        "rounds": rounds,
    }


def ratio(measured: dict[str, list[float]], mode: str) -> float:
    return round(statistics.median(measured[mode]) / statistics.median(measured["off"]), 2)


def timed(do: Callable[[], object]) -> float:
    begun = time.perf_counter()
    do()
    return (time.perf_counter() - begun) * 1000


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
