"""Records what refreshes cost in both modes while an index is there, without it, and when it is there again.

    PYTHONPATH=src:.:benchmarks python -m tests.unit.traces.record tests/unit/traces/index.json

Two stream tables have the same query over tables with the same rows, one in mode DIFFERENTIAL and one in mode FULL.
Each round changes some rows of both, refreshes one after the other, and notes the milliseconds that the cost model
gets.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from common.harness import Bench, bench

from pgtrickle.pipeline.engine.spark import SparkEngine

ROUNDS = 80
TABLES = """
CREATE TABLE differential_a (id int PRIMARY KEY, g int, k int);
CREATE TABLE b (id int PRIMARY KEY, k int, v int);
INSERT INTO differential_a SELECT i, i % 200, i * 7 % 60000 FROM generate_series(1, 2000) AS i;
CREATE TABLE full_a AS SELECT * FROM differential_a;
ALTER TABLE full_a ADD PRIMARY KEY (id);
INSERT INTO b SELECT i, i % 60000, i * 7919::int8 % 100003 FROM generate_series(1, 600000) AS i;
CREATE INDEX b_k ON b (k);
ANALYZE;
"""
QUERY = "SELECT a.g, min(b.v) AS lo, max(b.v) AS hi, count(*) AS n FROM {a} AS a JOIN b ON b.k = a.k GROUP BY a.g"
PHASES = ("", "DROP INDEX b_k", "CREATE INDEX b_k ON b (k)")


def shares(line: Bench) -> tuple[float, float]:
    """One round: differential, full."""
    found = []
    for name in ("differential", "full"):
        line.sql(f"UPDATE {name}_a SET k = (k + 1) % 60000 WHERE id <= 20")
        found.append(round(line.tick(name, name.upper()).share_ms, 1))
    return found[0], found[1]


def main(path: Path) -> None:
    phases = []
    with bench(spark=False) as line:
        line.engine = SparkEngine(lambda: "sc://127.0.0.1:1")  # changes as few as these need no Spark
        line.sql(TABLES)
        for name in ("differential", "full"):
            query = QUERY.format(a=f"{name}_a")
            line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", name, query, name.upper())
        line.plane.tick()
        for _ in range(10):  # plans are made and statements prepared
            shares(line)
        for change in PHASES:
            line.sql(change or "SELECT")
            phases.append({"after": change, "ms": [shares(line) for _ in range(ROUNDS)]})
        for name in ("differential", "full"):
            line.verify(name)
    text = json.dumps({"query": QUERY, "changes": 40, "phases": phases})
    path.write_text(text.replace("], [", "],\n[").replace("[[", "[\n[") + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
