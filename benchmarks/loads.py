"""Loads against CREATE TABLE AS of the same query in the same server: first load, and a second load with 0 % and 1 % of
the rows changed. PostgreSQL computes a load inside the server; Spark computes it from replicas.

Bars: at most 2.5 times as long on PostgreSQL and 5 times on Spark, for each query. A load and CREATE TABLE AS take
turns, and each ratio is that of neighbours.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from statistics import median
from typing import Any

from common.harness import Bench, bench, note, report

from pgtrickle.db.connect import connect
from pgtrickle.replica import ReplicaNeed

ROWS = 1_000_000
ROUNDS = 3
BARS = {"postgres": 2.5, "spark": 5.0}
SCHEMA = f"""
CREATE TABLE customer (id int PRIMARY KEY, region text NOT NULL);
CREATE TABLE product (id int PRIMARY KEY, price numeric(10, 2) NOT NULL);
CREATE TABLE sale
    (id int PRIMARY KEY, customer_id int NOT NULL, product_id int NOT NULL, qty int NOT NULL, note text,
     at timestamptz);
INSERT INTO customer SELECT i, 'region ' || i % 50 FROM generate_series(1, 300000) AS i;
INSERT INTO product SELECT i, i * 0.05 FROM generate_series(1, 10000) AS i;
INSERT INTO sale
SELECT i, 1 + i % 300000, 1 + i % 10000, i % 9, 'sale number ' || i, '2024-01-01'::timestamptz + i * interval '1 s'
FROM generate_series(1, {ROWS}) AS i;
"""
QUERIES = {
    "projection": "SELECT id, customer_id, qty * 2 AS twice, note, at FROM sale",
    "join": "SELECT s.id, c.region, p.price, s.qty * p.price AS amount FROM sale s "
    "JOIN customer c ON c.id = s.customer_id JOIN product p ON p.id = s.product_id",
    "groups": "SELECT customer_id, count(*) AS n, sum(qty) AS q FROM sale GROUP BY customer_id",
}


def created_ms(line: Bench, query: str) -> float:
    """Of CREATE TABLE AS."""
    begun = time.perf_counter()
    line.sql(f"CREATE TABLE plain AS {query}")
    taken = (time.perf_counter() - begun) * 1000
    line.sql("DROP TABLE plain")
    return taken


def first(line: Bench, name: str, query: str, engine: str) -> tuple[float, dict[str, float]]:
    create = "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL', engine => %s)"
    line.sql(create, name, query, engine)
    return loaded(line, name, "FULL", engine)


def again(line: Bench, name: str, share: float, number: int, engine: str) -> tuple[float, dict[str, float]]:
    if share:
        line.sql(f"UPDATE sale SET qty = (qty + 1) % 9 WHERE id % {round(1 / share)} = {number}")
    line.sql("SELECT pgtrickle.repair_stream_table(%s)", name)
    return loaded(line, name, "REINITIALIZE", engine)


def loaded(line: Bench, name: str, action: str, engine: str) -> tuple[float, dict[str, float]]:
    begun = time.perf_counter()
    outcome = line.tick(name, action)
    if outcome.engine is None or outcome.engine.engine != engine:
        raise SystemExit(f"{name} was not loaded by {engine}: {outcome.engine}")
    return (time.perf_counter() - begun) * 1000, dict(outcome.timings)


def replicate(line: Bench) -> None:
    """Replicas of all tables, with all columns."""
    store = line.plane.worker.replicas
    assert store is not None
    conn = connect(line.dsn, role="replica", autocommit=True)
    for table in ("customer", "product", "sale"):
        ((relid,),) = line.sql("SELECT %s::regclass::oid::int8", table)
        store.ensure(conn, ReplicaNeed(relid, None), requested=True)
    conn.close()


def measured(line: Bench, name: str, query: str, engine: str) -> dict[str, Any]:
    found: dict[str, list[tuple[float, float, dict[str, float]]]] = {"first": [], "full_0": [], "full_1": []}
    for number in range(ROUNDS):
        for kind, share in (("first", None), ("full_0", 0.0), ("full_1", 0.01)):
            plain = created_ms(line, query)
            ms, parts = first(line, name, query, engine) if share is None else again(line, name, share, number, engine)
            found[kind].append((plain, ms, parts))
            note(f"{engine} {name} {kind}: CREATE TABLE AS {plain:.0f} ms, load {ms:.0f} ms, {ms / plain:.2f} times")
        line.verify(name)
        line.sql("SELECT pgtrickle.drop_stream_table(%s)", name)
        line.sql("VACUUM ANALYZE sale")
    return {
        kind: {
            "create_table_as_ms": round(median(plain for plain, _, _ in runs)),
            "load_ms": round(median(ms for _, ms, _ in runs)),
            "times": round(median(ms / plain for plain, ms, _ in runs), 2),
            "last_parts_ms": {part: round(ms) for part, ms in runs[-1][2].items()},
        }
        for kind, runs in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=[*BARS, "both"], default="both")
    asked = parser.parse_args().engine
    engines = list(BARS) if asked == "both" else [asked]
    figures: dict[str, Any] = {}
    ok = True
    with tempfile.TemporaryDirectory() as state, bench() as line:
        os.environ["XDG_STATE_HOME"] = state  # where replicas are
        note(f"writing {ROWS} rows")
        line.sql(SCHEMA)
        line.sql("VACUUM ANALYZE")
        for engine in engines:
            if engine == "spark":
                replicate(line)
            found = {name: measured(line, name, query, engine) for name, query in QUERIES.items()}
            ok &= all(kind["times"] <= BARS[engine] for query in found.values() for kind in query.values())
            figures[engine] = found
    report("loads", ok, rows=ROWS, bars=BARS, **figures)


if __name__ == "__main__":
    main()
