"""One small refresh, 100 changes: where its time goes.

Bars: no Spark job, and all of it <= 1.0 x a trivial one-partition job on the same session in the same run, which is
less than any job could take, and <= 25 ms. The trivial job runs after every refresh, so that both see the same machine.
"""

from __future__ import annotations

import time

from common.harness import Bench, bench, note, percentile, report

ROUNDS = 60
ROWS = 200_000
SCHEMA = f"""
CREATE TABLE customer (id int PRIMARY KEY, region text NOT NULL);
CREATE TABLE product (id int PRIMARY KEY, price numeric(10, 2) NOT NULL);
CREATE TABLE sale (id int PRIMARY KEY, customer_id int NOT NULL, product_id int NOT NULL, qty int NOT NULL);
INSERT INTO customer SELECT i, 'region ' || i % 50 FROM generate_series(1, 10000) AS i;
INSERT INTO product SELECT i, i * 0.05 FROM generate_series(1, 2000) AS i;
INSERT INTO sale SELECT i, 1 + i % 10000, 1 + i % 2000, i % 9 FROM generate_series(1, {ROWS}) AS i;
ANALYZE;
"""
QUERIES = {
    "aggregate": "SELECT product_id, count(*) AS n, sum(qty) AS q FROM sale GROUP BY product_id",
    "join_aggregate": "SELECT c.region, count(*) AS n, sum(s.qty * p.price) AS amount FROM sale s "
    "JOIN customer c ON c.id = s.customer_id JOIN product p ON p.id = s.product_id GROUP BY c.region",
}


def measure(line: Bench, name: str) -> dict[str, float | bool]:
    assert line.engine is not None
    trivial, wall, jobs = [], [], line.engine.jobs
    parts: dict[str, list[float]] = {}
    for number in range(ROUNDS + 5):
        first = 1 + (number * 977) % (ROWS - 200)
        line.sql(f"UPDATE sale SET qty = qty + 1 WHERE id BETWEEN {first} AND {first + 49}")  # 50 D and 50 I
        begun = time.perf_counter()
        outcome = line.tick(name)
        elapsed = (time.perf_counter() - begun) * 1000
        begun = time.perf_counter()
        line.engine.trivial()
        if number < 5:
            continue
        trivial.append((time.perf_counter() - begun) * 1000)
        wall.append(elapsed)
        for part, ms in outcome.timings.items():
            parts.setdefault(part, []).append(ms)
    line.verify(name)
    ratio, jobs = round(percentile(wall, 0.5) / percentile(trivial, 0.5), 2), line.engine.jobs - jobs
    figures: dict[str, float | bool] = {
        "p50_ms": percentile(wall, 0.5),
        "p90_ms": percentile(wall, 0.9),
        "trivial_job_p50_ms": percentile(trivial, 0.5),
        "ratio": ratio,
        "spark_jobs": jobs,
        **{f"{part}_p50_ms": percentile(values, 0.5) for part, values in parts.items()},
        "ok": jobs == 0 and ratio <= 1.0 and percentile(wall, 0.5) <= 25.0,
    }
    note(f"{name}: {figures}")
    return figures


def main() -> None:
    with bench() as line:
        note("loading")
        line.sql(SCHEMA)
        results = {}
        for name, query in QUERIES.items():
            line.create(name, query)
            results[name] = measure(line, name)
            line.sql("SELECT pgtrickle.drop_stream_table(%s)", name)
    report("latency", all(bool(r["ok"]) for r in results.values()), **results)


if __name__ == "__main__":
    main()
