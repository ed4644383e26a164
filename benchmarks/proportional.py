"""The same 100 changed rows against a 3-table join aggregate over 20,000 and over 2,000,000 fact rows.

Bar: the refresh over the large table takes at most 1.3 x the refresh over the small one. Rounds of both alternate, so
that a noisy moment of the machine falls on both.
"""

from __future__ import annotations

import time

from common.harness import Bench, bench, note, percentile, report

SIZES = {"small": 20_000, "large": 2_000_000}
ROUNDS = 40
CHANGES = 50  # updated rows: 50 D and 50 I
GROUPS = 50


def load(line: Bench, name: str, rows: int) -> None:
    note(f"loading {rows} rows")
    line.sql(f"""
        CREATE TABLE {name}_customer (id int PRIMARY KEY, region text NOT NULL);
        CREATE TABLE {name}_product (id int PRIMARY KEY, price numeric(10, 2) NOT NULL);
        CREATE TABLE {name}_sale (
            id int PRIMARY KEY, customer_id int NOT NULL, product_id int NOT NULL, qty int NOT NULL
        );
        INSERT INTO {name}_customer SELECT i, 'region ' || i % {GROUPS} FROM generate_series(1, {rows // 20}) AS i;
        INSERT INTO {name}_product SELECT i, i * 0.05 FROM generate_series(1, {rows // 100}) AS i;
        INSERT INTO {name}_sale
        SELECT i, 1 + i % {rows // 20}, 1 + i % {rows // 100}, i % 9 FROM generate_series(1, {rows}) AS i;
        ANALYZE {name}_customer;
        ANALYZE {name}_product;
        ANALYZE {name}_sale;
    """)
    line.create(
        f"{name}_totals",
        f"SELECT c.region, count(*) AS n, sum(s.qty * p.price) AS amount, avg(s.qty) AS mean FROM {name}_sale s "
        f"JOIN {name}_customer c ON c.id = s.customer_id JOIN {name}_product p ON p.id = s.product_id "
        "GROUP BY c.region",
    )


def refresh(line: Bench, name: str, number: int) -> float:
    first = 1 + (number * 397) % (SIZES[name] - 2 * CHANGES)
    line.sql(f"UPDATE {name}_sale SET qty = qty + 1 WHERE id BETWEEN {first} AND {first + CHANGES - 1}")
    begun = time.perf_counter()
    line.tick(f"{name}_totals")
    return (time.perf_counter() - begun) * 1000


def main() -> None:
    with bench() as line:
        for name, rows in SIZES.items():
            load(line, name, rows)
        times: dict[str, list[float]] = {name: [] for name in SIZES}
        for number in range(ROUNDS + 5):
            for name in SIZES:
                elapsed = refresh(line, name, number)
                if number >= 5:
                    times[name].append(elapsed)
        for name in SIZES:
            line.verify(f"{name}_totals")
    small, large = percentile(times["small"], 0.5), percentile(times["large"], 0.5)
    ratio = round(large / small, 2)
    report(
        "proportional",
        ratio <= 1.3,
        small_p50_ms=small,
        large_p50_ms=large,
        ratio=ratio,
        rows=SIZES,
        changes=2 * CHANGES,
    )


if __name__ == "__main__":
    main()
