"""A load of 2 M rows, carried by the driver and by Spark's executors in turns.

Bar: the content is exact and the executors take at most 1.3 x the driver's time. On one machine both ways use the same
cores; executors are there for clusters, where theirs are more than the driver's. `stage` is what the two ways do
differently (read, identify, stage); `total` has the apply, which is the same for both.
"""

from __future__ import annotations

import sys
import time

from common.harness import Bench, bench, note, percentile, report

ROWS = 2_000_000
ROUNDS = 3
# The first two are read in parts, side by side; PostgreSQL answers the third in one piece.
QUERIES = {
    "plain": "SELECT id, customer, note, amount FROM sale",
    "joined": "SELECT s.id, c.name, s.amount FROM sale AS s JOIN customer AS c ON c.id = s.customer",
    "whole": "SELECT DISTINCT id, customer, note FROM sale",
    "small": "SELECT id, name FROM customer",
}
BARRED = ("plain", "joined", "whole")  # the small one shows what the executors cost before their first row
WAYS = {"driver": sys.maxsize, "executors": 0}


def load(line: Bench, name: str, way: str) -> tuple[float, float]:
    """Milliseconds to stage and in all of one load into an empty table."""
    line.plane.worker.refresher.bulk_bytes = WAYS[way]
    line.sql(f"TRUNCATE {name}")
    line.sql(f"SELECT pgtrickle.repair_stream_table('{name}')")
    begun = time.perf_counter()
    timings = line.tick(name, "REINITIALIZE").timings
    total = (time.perf_counter() - begun) * 1000
    if ("executors" in timings) != (way == "executors"):
        raise SystemExit(f"{name} was not loaded by the {way}: {timings}")
    return sum(ms for part, ms in timings.items() if part in ("executors", "read", "spark", "stage")), total


def main() -> None:
    with bench() as line:
        note(f"loading {ROWS} rows")
        line.sql(f"""
            CREATE TABLE customer (id int PRIMARY KEY, name text NOT NULL);
            CREATE TABLE sale (id int PRIMARY KEY, customer int NOT NULL, note text, amount numeric(10, 2));
            INSERT INTO customer SELECT i, 'customer ' || i FROM generate_series(1, {ROWS // 20}) AS i;
            INSERT INTO sale SELECT i, 1 + i % {ROWS // 20}, nullif('note ' || i % 1000, 'note 7'), i * 0.01
            FROM generate_series(1, {ROWS}) AS i;
            ANALYZE customer;
            ANALYZE sale;
        """)
        for name, query in QUERIES.items():
            line.plane.worker.refresher.bulk_bytes = sys.maxsize
            line.create(name, query, "AUTO")
            line.verify(name)
        stage: dict[str, list[float]] = {}
        total: dict[str, list[float]] = {}
        for number in range(ROUNDS + 1):
            for name in QUERIES:
                for way in WAYS:
                    staged, whole = load(line, name, way)
                    note(f"{name} by {way}: staged in {staged:.0f} ms, {whole:.0f} ms in all")
                    if number:
                        stage.setdefault(f"{name}_{way}", []).append(staged)
                        total.setdefault(f"{name}_{way}", []).append(whole)
        size = line.sql("SELECT pg_relation_size('sale')")[0][0]
    stage_ms = {key: percentile(values, 0.5) for key, values in stage.items()}
    total_ms = {key: percentile(values, 0.5) for key, values in total.items()}
    # Of each round by itself, since its two loads are neighbours in time; then the middle one.
    pairs = {name: zip(total[f"{name}_executors"], total[f"{name}_driver"], strict=True) for name in QUERIES}
    ratios = {name: percentile([mine / theirs for mine, theirs in pair], 0.5) for name, pair in pairs.items()}
    report(
        "bulk",
        all(ratios[name] <= 1.3 for name in BARRED),
        rows=ROWS,
        source_bytes=size,
        ratios=ratios,
        stage_p50_ms=stage_ms,
        total_p50_ms=total_ms,
    )


if __name__ == "__main__":
    main()
