"""Differential refresh against REFRESH MATERIALIZED VIEW of the same query in the same server.

Bar: ahead at 0.1 % changed rows and below, for each query. 1 % and 10 % are measured and reported. The table is
DIFFERENTIAL throughout; AUTO would choose FULL for the large changes.
"""

from __future__ import annotations

import time
from typing import Any

from common.harness import Bench, bench, note, report

ROWS = 1_000_000
SHARES = (0.0001, 0.001, 0.01, 0.1)
SCHEMA = f"""
CREATE TABLE customer (id int PRIMARY KEY, region text NOT NULL);
CREATE TABLE product (id int PRIMARY KEY, price numeric(10, 2) NOT NULL);
CREATE TABLE sale (id int PRIMARY KEY, customer_id int NOT NULL, product_id int NOT NULL, qty int NOT NULL);
INSERT INTO customer SELECT i, 'region ' || i % 50 FROM generate_series(1, 50000) AS i;
INSERT INTO product SELECT i, i * 0.05 FROM generate_series(1, 10000) AS i;
INSERT INTO sale SELECT i, 1 + i % 50000, 1 + i % 10000, i % 9 FROM generate_series(1, {ROWS}) AS i;
ANALYZE;
"""
QUERIES = {
    "aggregate": "SELECT product_id, count(*) AS n, sum(qty) AS q FROM sale GROUP BY product_id",
    "join_aggregate": "SELECT c.region, count(*) AS n, sum(s.qty * p.price) AS amount FROM sale s "
    "JOIN customer c ON c.id = s.customer_id JOIN product p ON p.id = s.product_id GROUP BY c.region",
    "join": "SELECT s.id, c.region, s.qty * p.price AS amount FROM sale s JOIN customer c ON c.id = s.customer_id "
    "JOIN product p ON p.id = s.product_id WHERE s.qty > 4",
}


def timed(line: Bench, share: float, name: str, number: int) -> tuple[float, float, dict[str, float]]:
    count = int(ROWS * share)
    step = ROWS // count
    line.plane.tidy()
    line.sql(f"UPDATE sale SET qty = (qty + 1) % 9 WHERE id % {step} = {number % step}")
    begun = time.perf_counter()
    parts = line.tick(name).timings
    differential = (time.perf_counter() - begun) * 1000
    begun = time.perf_counter()
    line.sql(f"REFRESH MATERIALIZED VIEW {name}_mv")
    return differential, (time.perf_counter() - begun) * 1000, parts


def main() -> None:
    figures: dict[str, Any] = {}
    ok = True
    with bench() as line:
        note(f"loading {ROWS} rows")
        line.sql(SCHEMA)
        for name, query in QUERIES.items():
            note(f"{name}: first load")
            line.create(name, query)
            line.sql(f"CREATE MATERIALIZED VIEW {name}_mv AS {query}")
            for share in SHARES:
                rounds = 9 if share <= 0.001 else 2
                pairs = [timed(line, share, name, number) for number in range(rounds)]
                differential, full = (
                    round(sorted(values)[len(pairs) // 2], 1)
                    for values in ([p[0] for p in pairs], [p[1] for p in pairs])
                )
                entry = {
                    "differential_ms": differential,
                    "refresh_mv_ms": full,
                    "times_faster": round(full / differential, 2),
                    "last_parts_ms": {part: round(ms) for part, ms in pairs[-1][2].items()},
                }
                note(f"{name} at {share:.2%}: {entry}")
                figures.setdefault(name, {})[f"{share:.2%}"] = entry
                ok = ok and (share > 0.001 or differential < full)
            line.verify(name)
            line.sql("SELECT pgtrickle.drop_stream_table(%s)", name)
            line.sql(f"DROP MATERIALIZED VIEW {name}_mv")
    report("incremental", ok, rows=ROWS, **figures)


if __name__ == "__main__":
    main()
