"""Stream tables over tables of other databases."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pgtrickle.db.install import install
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
    home.sql(
        "CREATE TABLE regions (region text PRIMARY KEY, manager text); INSERT INTO regions VALUES ('south', 'sue')"
    )
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


def foreign(fleet: Elsewhere, number: int, table: str, columns: str, *, name: str | None = None) -> None:
    """A foreign table of the home database over one of another."""
    other = fleet.others[number]
    fleet.home.superuser_sql(
        "CREATE EXTENSION IF NOT EXISTS postgres_fdw;"
        f"CREATE SERVER srv_{number} FOREIGN DATA WRAPPER postgres_fdw "
        f"OPTIONS (host 'localhost', port '{other.server.port}', dbname '{other.name}');"
        f"CREATE USER MAPPING FOR app SERVER srv_{number} OPTIONS (user 'app', password 'app');"
        f"GRANT USAGE ON FOREIGN SERVER srv_{number} TO app"
    )
    fleet.home.sql(
        f"CREATE FOREIGN TABLE {name or table} ({columns}) SERVER srv_{number} "
        f"OPTIONS (schema_name 'public', table_name '{table}')"
    )


def test_a_foreign_table_is_maintained_from_its_origins_changes(fleet: Elsewhere) -> None:
    crm, _ = fleet.others
    foreign(fleet, 0, "customers", "no int OPTIONS (column_name 'id'), region varchar(20)", name="people")
    query = "SELECT region, count(*) AS n, max(no) AS last FROM people GROUP BY region"
    fleet.line.create("by_region", query)
    fleet.settle()
    assert fleet.line.rows("by_region") == sorted(fleet.home.sql(query), key=repr)
    crm.sql("INSERT INTO customers VALUES (7, 'gus', 'west'); DELETE FROM customers WHERE id = 1")
    fleet.settle()
    assert fleet.line.last("by_region")[:2] == ("DIFFERENTIAL", "COMPLETED")
    assert fleet.line.rows("by_region") == sorted(fleet.home.sql(query), key=repr)
    crm.sql("TRUNCATE customers; INSERT INTO customers VALUES (8, NULL, NULL)")
    fleet.settle()
    assert fleet.line.rows("by_region") == sorted(fleet.home.sql(query), key=repr)


def test_a_foreign_table_is_full_until_its_origin_is_managed(
    fleet: Elsewhere, make_database: Callable[[], Database]
) -> None:
    stranger = make_database()
    stranger.sql("CREATE TABLE things (id int PRIMARY KEY, v int); INSERT INTO things VALUES (1, 1)")
    fleet.others = [*fleet.others, stranger]
    foreign(fleet, 2, "things", "id int, v int")
    query = "SELECT v, count(*) AS n FROM things GROUP BY v"
    fleet.line.create("by_v", query)
    fleet.line.tick()
    mode = "SELECT effective_refresh_mode, mode_reason FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'by_v'"
    (found,) = fleet.home.sql(mode)
    assert found[0] == "FULL"
    assert "is not managed" in found[1]
    stranger.sql("INSERT INTO things VALUES (2, 5)")
    fleet.home.sql("SELECT pgtrickle.refresh_stream_table('by_v')")
    fleet.line.tick()
    assert fleet.line.rows("by_v") == [(1, 1), (5, 1)]

    with psycopg.connect(stranger.dsn) as connection:
        install(connection)
    fleet.settle()
    stranger.sql("UPDATE things SET v = 5 WHERE id = 1")
    fleet.settle()
    assert fleet.line.last("by_v")[:2] == ("DIFFERENTIAL", "COMPLETED")
    assert fleet.line.rows("by_v") == [(5, 2)]

    stranger.sql("DROP SCHEMA pgtrickle_changes, pgtrickle CASCADE")  # and back
    stranger.sql("INSERT INTO things VALUES (3, 5)")
    fleet.line.tick()
    fleet.home.sql("SELECT pgtrickle.refresh_stream_table('by_v')")
    fleet.line.tick()
    assert fleet.home.sql(mode)[0][0] == "FULL"
    assert fleet.line.rows("by_v") == [(5, 3)]
