"""A join aggregate over tables of two databases, kept in a third: 1 M orders, 100,000 customers, 0.1 % of both changed.

Against what one does without us: REFRESH MATERIALIZED VIEW over postgres_fdw, with remote estimates and large fetches,
in the same server and the same run, turns alternating. Bar: 20 x. What is timed is all of it: the changes read at both
origins, both mirrors and the stream table committed.
"""

from __future__ import annotations

import argparse
import time

import psycopg
from common.harness import Bench, bench, note, percentile, report
from psycopg.conninfo import conninfo_to_dict, make_conninfo

ROUNDS = 12
QUERY = (
    "SELECT c.region, count(*) AS n, sum(o.amount) AS amount FROM {orders} AS o "
    "JOIN {customers} AS c ON c.id = o.customer GROUP BY c.region"
)


def database(line: Bench, name: str) -> Bench:
    line.sql(f"CREATE DATABASE {name}")
    return Bench(make_conninfo(line.dsn, dbname=name), None)


def load(orders: Bench, customers: Bench, rows: int) -> None:
    note(f"loading {rows} orders and {rows // 10} customers")
    orders.sql(f"""
        CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL, amount numeric(10, 2) NOT NULL);
        INSERT INTO orders SELECT i, 1 + i % {rows // 10}, i % 1000 FROM generate_series(1, {rows}) AS i;
        CREATE INDEX ON orders (customer);
        ANALYZE orders;
    """)
    customers.sql(f"""
        CREATE TABLE customers (id int PRIMARY KEY, region text NOT NULL);
        INSERT INTO customers SELECT i, 'region ' || i % 50 FROM generate_series(1, {rows // 10}) AS i;
        ANALYZE customers;
    """)


def foreign(line: Bench, other: Bench, name: str, columns: str) -> None:
    """The best that postgres_fdw has to offer for reading a whole table."""
    parts = conninfo_to_dict(line.dsn)
    password = f", password '{parts['password']}'" if parts.get("password") else ""
    line.sql(f"""
        CREATE EXTENSION IF NOT EXISTS postgres_fdw;
        CREATE SERVER srv_{name} FOREIGN DATA WRAPPER postgres_fdw OPTIONS (
            host '{parts["host"]}', port '{parts["port"]}', dbname '{conninfo_to_dict(other.dsn)["dbname"]}',
            use_remote_estimate 'true', fetch_size '50000'
        );
        CREATE USER MAPPING FOR CURRENT_USER SERVER srv_{name} OPTIONS (user '{parts["user"]}'{password});
        CREATE FOREIGN TABLE foreign_{name} ({columns}) SERVER srv_{name}
            OPTIONS (schema_name 'public', table_name '{name}');
        ANALYZE foreign_{name};
    """)


def change(orders: Bench, customers: Bench, rows: int, number: int) -> None:
    """A thousandth of both tables: updates, inserts and deletes."""
    few, first = rows // 1000, 1 + (number * 7919) % (rows // 2)
    orders.sql(f"""
        UPDATE orders SET amount = amount + 1 WHERE id BETWEEN {first} AND {first + few // 2 - 1};
        DELETE FROM orders WHERE id BETWEEN {first + few // 2} AND {first + few // 2 + few // 4 - 1};
        INSERT INTO orders SELECT max_id + i, 1 + i % {rows // 10}, 5
        FROM (SELECT max(id) AS max_id FROM orders) AS m, generate_series(1, {few // 4}) AS i;
    """)
    start = 1 + (number * 997) % (rows // 20)
    customers.sql(
        f"UPDATE customers SET region = 'region ' || (id + {number}) % 50 "
        f"WHERE id BETWEEN {start} AND {start + few // 10 - 1}"
    )


def settle(line: Bench) -> None:
    for _ in range(10):
        outcomes = line.session.tick()
        failed = [o for o in outcomes if o.error is not None]
        if failed:
            raise SystemExit(f"not refreshed: {failed}")
        if all(o.action == "NO_DATA" for o in outcomes):
            return
    raise SystemExit("it does not get quiet")


def compare(line: Bench) -> None:
    rows = line.sql(
        "SELECT count(*) FROM ((SELECT region, n, amount FROM spanned EXCEPT ALL TABLE matview) "
        "UNION ALL (TABLE matview EXCEPT ALL SELECT region, n, amount FROM spanned)) AS d"
    )
    if rows != [(0,)]:
        raise SystemExit(f"the stream table and the materialized view differ in {rows[0][0]} rows")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    ours: list[float] = []
    theirs: list[float] = []
    with bench() as line:
        orders, customers = database(line, "sales"), database(line, "crm")
        load(orders, customers, rows)
        foreign(line, orders, "orders", "id int, customer int, amount numeric(10,2)")
        foreign(line, customers, "customers", "id int, region text")
        text = QUERY.format(orders="foreign_orders", customers="foreign_customers")
        line.sql(f"CREATE MATERIALIZED VIEW matview AS {text}")
        begun = time.perf_counter()
        line.sql(
            "SELECT pgtrickle.create_stream_table('spanned', %s, 'calculated', 'DIFFERENTIAL')",
            QUERY.format(orders="sales.public.orders", customers="crm.public.customers"),
        )
        settle(line)
        loaded = time.perf_counter() - begun
        note(f"loaded in {loaded:.1f} s")
        for number in range(ROUNDS + 2):
            change(orders, customers, rows, number)
            begun = time.perf_counter()
            line.tick("spanned")
            middle = time.perf_counter()
            line.sql("REFRESH MATERIALIZED VIEW matview")
            end = time.perf_counter()
            compare(line)
            if number >= 2:
                ours.append((middle - begun) * 1000)
                theirs.append((end - middle) * 1000)
        for other in (orders, customers):
            other.close()
    ratio = round(percentile(theirs, 0.5) / percentile(ours, 0.5), 1)
    report(
        "crossdb",
        ratio >= 20,
        rows=rows,
        changes=rows // 1000 + rows // 10_000,
        load_s=round(loaded, 1),
        stream_table_p50_ms=percentile(ours, 0.5),
        stream_table_p99_ms=percentile(ours, 0.99),
        matview_over_fdw_p50_ms=percentile(theirs, 0.5),
        ratio=ratio,
    )


if __name__ == "__main__":
    try:
        main()
    except psycopg.Error as error:
        raise SystemExit(str(error)) from error
