"""A fleet that runs, and a browser that looks at it: one of each for all tests of this folder."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.demo.workload import Workload
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.browser.browser import Browser
from tests.conftest import Database, create_database, prepare_server
from tests.fleet.conftest import Run, Shop, wait_for
from tests.packages import require_program

TOKEN = "a token of the browser"


class Fleet:
    """The demo's shop, with a workload; and `crm`, which only tests write to and whose customers the shop reads."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.shop = Shop(server)
        self.shop.sql("UPDATE pgtrickle.pgt_stream_tables SET schedule = '1s'")
        self.crm = create_database(server, "crm")
        with connect(self.crm.dsn, role="test", autocommit=True) as connection:
            install(connection)
        self.crm.sql(
            "CREATE TABLE accounts (id int PRIMARY KEY, segment text, employees int);"
            "INSERT INTO accounts SELECT i, 's' || i % 3, i FROM generate_series(1, 20) AS i"
        )
        create(self.crm, "accounts_by_segment", "SELECT segment, count(*) AS n FROM accounts GROUP BY segment")
        create(self.crm, "share_of_employees", "SELECT id, 1000 / employees AS share FROM accounts")
        create(
            self.shop.database,
            "orders_by_segment",
            "SELECT a.segment, count(*) AS orders FROM orders AS o "
            "JOIN crm.public.accounts AS a ON a.id = o.customer_id GROUP BY a.segment",
        )

    def refreshes(self, database: Database, name: str) -> int:
        rows = database.sql(
            "SELECT count(*) FROM pgtrickle.pgt_refresh_history AS h JOIN pgtrickle.pgt_stream_tables USING (pgt_id) "
            "WHERE pgt_name = %s AND h.status = 'COMPLETED'",
            name,
        )
        return int(rows[0][0])

    def is_loaded(self) -> bool:
        return all(
            d.sql(
                "SELECT bool_and(is_populated), count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'public'"
            )
            == [(True, expected)]
            for d, expected in ((self.shop.database, 7), (self.crm, 2))
        )


def create(database: Database, name: str, query: str) -> None:
    database.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated')", name, query)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = require_program("chromium", "chromium")
    driver = require_program("chromedriver", "chromium-driver")
    found = Browser(program, driver, tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def fleet(chromium: Browser, spark_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Served by `pgtrickle run`, under load. The browser comes first: without one nothing is started."""
    server = EmbeddedPostgres.create(settings={"fsync": "off", "max_connections": "80"})
    with server:
        prepare_server(server)
        found = Fleet(server)
        run = Run([found.shop.dsn], spark_url, tmp_path_factory.mktemp("run") / "run.log")
        run.environ["PGTRICKLE_HTTP_TOKEN"] = TOKEN
        address = f"127.0.0.1:{free_port()}"
        chromium.base = f"http://{address}"
        workload = Workload(found.shop.dsn, rng=random.Random(11), pause_s=0.15)
        run.start(http=address, scheduler_interval_ms=250, engine="postgres", enable_refresh_broker=True)
        try:
            wait_for(found.is_loaded)
            workload.start()
            wait_for(lambda: found.refreshes(found.shop.database, "sales_by_country") > 5)
            yield found
        finally:
            workload.stop()
            run.end()


@pytest.fixture
def browser(chromium: Browser, fleet: Fleet) -> Iterator[Browser]:
    """Logged out. The test fails when the browser had anything to complain about."""
    chromium.reset()
    yield chromium
    problems: list[Any] = chromium.problems()
    chromium.open("/healthz")  # the live updates of the last page end here
    assert problems == []


@pytest.fixture
def trusted(browser: Browser) -> Browser:
    """Logged in, through the form."""
    browser.log_in(TOKEN)
    browser.wait(lambda: "Log out" in browser.text(".foot"))
    return browser


def table_path(database: str, name: str) -> str:
    return f"/tables/{database}/public/{name}"
