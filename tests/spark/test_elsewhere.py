"""Stream tables over tables of other databases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import Database
from tests.elsewhere import Elsewhere
from tests.line import Line

Make = Callable[[], Database]


@pytest.fixture
def fleet(make_installed: Make, make_database: Make, make_line: Callable[..., Line]) -> Elsewhere:
    home, crm, erp = make_installed(), make_installed(), make_installed()
    crm.sql(
        "CREATE TABLE customers (id int PRIMARY KEY, name text, region text);"
        "INSERT INTO customers VALUES (1, 'ann', 'north'), (2, 'bob', 'south'), (3, NULL, 'south')"
    )
    erp.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10,2), at timestamptz);"
        "CREATE INDEX ON orders (customer);"
        "INSERT INTO orders VALUES (10, 1, 5.50, '2026-01-01 12:00+02'), (11, 2, 7, NULL), (12, 2, 1.25, now())"
    )
    home.sql("CREATE TABLE regions (region text PRIMARY KEY, manager text); INSERT INTO regions VALUES ('south', 'sue')")
    return Elsewhere(home, make_line(home), [crm, erp], make_database)


def test_a_join_of_two_other_databases_with_a_local_table(fleet: Elsewhere) -> None:
    fleet.create(
        "totals",
        "SELECT c.region, r.manager, count(*) AS n, sum(o.amount) AS total FROM {0}.public.customers AS c "
        "JOIN {1}.public.orders AS o ON o.customer = c.id LEFT JOIN regions AS r ON r.region = c.region GROUP BY 1, 2",
    )
    fleet.settle()
    fleet.check("totals", action=None)
    crm, erp = fleet.others
    crm.sql("UPDATE customers SET region = 'north' WHERE id = 2; INSERT INTO customers VALUES (4, 'dan', 'east')")
    erp.sql("INSERT INTO orders VALUES (13, 4, 9.99, NULL), (14, 1, 1, NULL); DELETE FROM orders WHERE id = 10")
    fleet.settle()
    fleet.check("totals")
    fleet.home.sql("INSERT INTO regions VALUES ('north', 'ned')")
    fleet.settle()
    fleet.check("totals")
