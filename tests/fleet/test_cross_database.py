"""Stream tables over databases of two servers, under `pgtrickle run`, while processes and servers are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database, prepare_server
from tests.fleet.conftest import Run, Small, wait_for


class Span:
    """`home` on one server reads `orders` of a database beside it and `customers` of one on another server."""

    def __init__(self, near: EmbeddedPostgres, far: EmbeddedPostgres) -> None:
        self.near, self.far = near, far
        self.home, self.sales = create_database(near, "home"), create_database(near, "sales")
        self.crm = create_database(far, "crm")
        for database in (self.home, self.sales, self.crm):
            with connect(database.dsn, role="test", autocommit=True) as connection:
                install(connection)
        self.sales.sql("CREATE TABLE orders (id serial PRIMARY KEY, customer int, amount int)")
        self.crm.sql(
            "CREATE TABLE customers (id int PRIMARY KEY, region text);"
            "INSERT INTO customers SELECT i, 'r' || i % 3 FROM generate_series(1, 20) AS i"
        )
        self.home.sql(
            "SELECT pgtrickle.create_stream_table('totals', "
            "'SELECT c.region, count(*) AS n, sum(o.amount) AS total FROM sales.public.orders AS o "
            "JOIN crm.public.customers AS c ON c.id = o.customer GROUP BY c.region', 'calculated')"
        )
        self.small = Small(self.home)
        self._written = 0

    def write(self) -> bool:
        """A little of everything, in both databases. True: both were there."""
        self._written += 1
        n = self._written
        self.sales.sql(
            "INSERT INTO orders (customer, amount) SELECT 1 + (%s + i) %% 20, i FROM generate_series(1, 5) AS i", n
        )
        self.sales.sql("DELETE FROM orders WHERE id = %s", n * 3)
        self.crm.sql("UPDATE customers SET region = 'r' || (id + %s) %% 4 WHERE id %% 5 = %s %% 5", n, n)
        return True

    def wanted(self) -> list[tuple[Any, ...]]:
        """PostgreSQL's answer, over copies of both tables."""
        with psycopg.connect(self.home.dsn) as conn:
            conn.execute("CREATE TEMP TABLE o (customer int, amount int); CREATE TEMP TABLE c (id int, region text)")
            for database, query, table in (
                (self.sales, "SELECT customer, amount FROM orders", "o"),
                (self.crm, "SELECT id, region FROM customers", "c"),
            ):
                conn.cursor().executemany(f"INSERT INTO {table} VALUES (%s, %s)", database.sql(query))
            return conn.execute(
                "SELECT c.region, count(*), sum(o.amount) FROM o JOIN c ON c.id = o.customer GROUP BY 1 ORDER BY 1"
            ).fetchall()

    def is_current(self) -> bool:
        return self.home.sql("SELECT region, n, total FROM totals ORDER BY 1") == self.wanted()

    def verify(self) -> None:
        results = verify_tables(self.home.dsn, ["totals"], timeout_seconds=20, servers=[self.crm.dsn])
        assert len(results) == 3
        assert all(r.ok for r in results), results


@pytest.fixture
def far_server() -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres.create(settings={"fsync": "off", "max_connections": "40"})
    with server:
        prepare_server(server)
        yield server


@pytest.fixture
def span(own_server: EmbeddedPostgres, far_server: EmbeddedPostgres) -> Span:
    return Span(own_server, far_server)


@pytest.fixture
def run(span: Span, spark_url: str, make_run: Callable[..., Run]) -> Run:
    run = make_run([span.home.dsn, span.crm.dsn], spark_url)
    run.start()
    return run


def exists(database: Database, table: str) -> bool:
    return bool(database.sql("SELECT to_regclass(%s) IS NOT NULL", table)[0][0])


def test_two_servers_and_everything_that_can_die(span: Span, run: Run) -> None:
    wait_for(lambda: exists(span.home, "totals"))
    span.write()
    wait_for(span.is_current)

    def killed(kind: str) -> Callable[[], None]:
        return lambda: os.kill(span.small.pid(kind), signal.SIGKILL)

    def restarted(server: EmbeddedPostgres) -> Callable[[], None]:
        return lambda: server.restart("immediate")

    for harm in (killed("pipeline"), killed("scheduler"), restarted(span.far), restarted(span.near)):
        span.write()
        time.sleep(0.1)  # in the midst of it, now and then
        harm()
        wait_for(span.write)
        wait_for(span.is_current)
    span.verify()
    run.kill()
    span.write()
    run.start()
    wait_for(span.is_current)
    span.verify()


def test_a_server_that_is_down_is_named_and_delays_nobody_else(span: Span, run: Run) -> None:
    span.home.sql("SELECT pgtrickle.create_stream_table('n', 'SELECT count(*) AS n FROM sales.public.orders')")
    wait_for(lambda: exists(span.home, "totals") and exists(span.home, "n"))
    span.write()
    wait_for(span.is_current)
    ((plan,),) = span.home.sql("CALL pgtrickle.explain_query('SELECT sum(amount) AS s FROM sales.public.orders')")
    assert plan.startswith("Mode: DIFFERENTIAL")
    span.far.stop("immediate")
    span.sales.sql("INSERT INTO orders (customer, amount) VALUES (1, 100)")
    wait_for(lambda: span.home.sql("SELECT n FROM n") == span.sales.sql("SELECT count(*) FROM orders"))
    health = "SELECT h::text FROM pgtrickle.health_check() AS h WHERE h.check_name = 'origins'"
    wait_for(lambda: "/crm" in str(span.home.sql(health)))
    assert span.home.sql("SELECT DISTINCT status FROM pgtrickle.pgt_stream_tables") == [("ACTIVE",)]
    span.far.start()
    span.crm.sql("UPDATE customers SET region = 'back'")
    wait_for(span.is_current)
    span.verify()
