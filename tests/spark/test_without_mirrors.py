"""Stream tables over tables of other databases that Spark reads from replicas at the origins: nothing is mirrored."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgtrickle.db.install import install
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.model.reasons import ReasonCode
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database, prepare_server
from tests.elsewhere import Elsewhere
from tests.line import Line
from tests.postgres.test_origin_restored import put_back
from tests.spark.test_cross_database import foreign, recreated

Make = Callable[[], Database]

JOINED = (
    "SELECT c.region, count(*) AS n, sum(o.amount) AS total, max(o.at) AS last FROM {0}.public.customers AS c "
    "JOIN {1}.public.orders AS o ON o.customer = c.id GROUP BY c.region"
)
WITH_LOCAL = (
    "SELECT c.name, r.manager, o.amount FROM {0}.public.customers AS c LEFT JOIN {1}.public.orders AS o "
    "ON o.customer = c.id LEFT JOIN regions AS r ON r.region = c.region"
)


class Remote(Elsewhere):
    """The same fleet; stream tables are evaluated on Spark, from replicas."""

    def define(self, name: str, query: str, mode: str = "FULL", engine: str = "spark") -> None:
        self.expect(name, query)
        text = query.format(*(d.name for d in self.others))
        self.line.sql(
            "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s, engine => %s)", name, text, mode, engine
        )
        self.settle()

    def check_on_spark(self, name: str, action: str) -> None:
        """Equal to PostgreSQL's answer, computed on Spark, verified, and without a row of a source in this database."""
        assert self.line.last(name)[:2] == (action, "COMPLETED"), self.line.last(name)
        assert self.line.rows(name) == self.expected(name)
        (latest,) = self.line.sql(
            "SELECT engine FROM pgtrickle.get_refresh_history(%s) ORDER BY refresh_id DESC LIMIT 1", name
        )
        assert latest == ("spark",)
        assert self.stored() == 0
        (result,) = verify_tables(self.home.dsn, [name], timeout_seconds=1, servers=self.servers)
        assert result.ok, result

    servers: tuple[str, ...] = ()

    def stored(self) -> int:
        """Bytes that this database stores of tables of other databases: mirrors and their change buffers."""
        ((size,),) = self.line.sql(
            "WITH m AS (SELECT oid, reltoastrelid FROM pg_class WHERE relname LIKE 'mirror%' AND relkind = 'r') "
            "SELECT coalesce(sum(pg_relation_size(r.oid)), 0) FROM (SELECT oid FROM m "
            "UNION SELECT reltoastrelid FROM m WHERE reltoastrelid <> 0 "
            "UNION SELECT c.oid FROM pg_class AS c JOIN m ON c.relname = 'changes_' || m.oid) AS r"
        )
        return int(size)

    def cuts(self, name: str) -> dict[str, Any]:
        ((frontier,),) = self.line.sql("SELECT frontier FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)
        return {key: entry["snapshot"] for key, entry in frontier.items()}


@pytest.fixture
def fleet(make_installed: Make, make_database: Make, make_line: Callable[..., Line]) -> Remote:
    home, crm, erp = make_installed(), make_installed(), make_installed()
    crm.sql(
        "CREATE TABLE customers (id int PRIMARY KEY, name text, region text);"
        "INSERT INTO customers VALUES (1, 'ann', 'north'), (2, 'bob', 'south'), (3, NULL, 'south')"
    )
    erp.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10,2), at timestamptz);"
        "INSERT INTO orders VALUES (10, 1, 5.50, '2026-01-01 12:00+02'), (11, 2, 7, NULL), (12, 2, 1.25, now())"
    )
    home.sql(
        "CREATE TABLE regions (region text PRIMARY KEY, manager text); INSERT INTO regions VALUES ('south', 'sue')"
    )
    return Remote(home, make_line(home), [crm, erp], make_database)


def change(fleet: Elsewhere) -> None:
    crm, erp = fleet.others
    crm.sql("UPDATE customers SET region = 'north' WHERE id = 2; INSERT INTO customers VALUES (4, 'dan', 'east')")
    erp.sql("INSERT INTO orders VALUES (13, 4, 9.99, NULL), (14, 1, 1, NULL); DELETE FROM orders WHERE id = 10")


def test_full_refreshes_read_replicas_of_other_databases(fleet: Remote) -> None:
    fleet.define("totals", JOINED)
    fleet.check_on_spark("totals", "FULL")
    fleet.define("rows", WITH_LOCAL)
    fleet.check_on_spark("rows", "FULL")
    before = fleet.cuts("totals")
    assert len(before) == 3
    change(fleet)
    fleet.settle()
    fleet.check_on_spark("totals", "FULL")
    fleet.check_on_spark("rows", "FULL")
    assert all(cut != before[key] for key, cut in fleet.cuts("totals").items())
    for other in fleet.others:  # one replica of each source, whoever reads it
        ((replicas,),) = other.sql("SELECT count(*) FROM pgtrickle.pgt_replicas")
        assert replicas == 1
    assert {outcome.action for outcome in fleet.line.tick()} == {"NO_DATA"}


def test_changes_are_followed_on_spark(fleet: Remote) -> None:
    fleet.define("totals", JOINED, mode="AUTO")
    fleet.define("rows", WITH_LOCAL, mode="DIFFERENTIAL")
    change(fleet)
    fleet.settle()
    fleet.check_on_spark("totals", "DIFFERENTIAL")
    fleet.check_on_spark("rows", "DIFFERENTIAL")
    crm, erp = fleet.others
    crm.sql("DELETE FROM customers WHERE id = 1")  # of one origin only, then of none
    fleet.settle()
    fleet.check_on_spark("totals", "DIFFERENTIAL")
    fleet.home.sql("INSERT INTO regions VALUES ('east', 'eve')")
    fleet.settle()
    fleet.check_on_spark("rows", "DIFFERENTIAL")
    erp.sql("TRUNCATE orders; INSERT INTO orders VALUES (20, 2, 3, NULL)")
    fleet.settle()
    fleet.check_on_spark("totals", "FULL")
    erp.sql("INSERT INTO orders VALUES (21, 2, 4, NULL)")
    fleet.settle()
    fleet.check_on_spark("totals", "DIFFERENTIAL")


def test_a_restart_continues_at_the_cuts(fleet: Remote, make_line: Callable[..., Line]) -> None:
    fleet.define("totals", JOINED, mode="AUTO")
    fleet.line.close()
    change(fleet)
    fleet.line = make_line(fleet.home)
    fleet.settle()
    fleet.check_on_spark("totals", "DIFFERENTIAL")


def away(conn: psycopg.Connection[Any], database: Database, *, is_away: bool) -> None:
    may = sql.Literal(not is_away)
    conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(sql.Identifier(database.name), may))
    if is_away:
        conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database.name])


def test_an_origin_that_is_away_delays_only_tables_that_need_it(fleet: Remote) -> None:
    fleet.define("joined", JOINED, mode="AUTO")
    fleet.define("one", "SELECT count(*) AS n FROM {1}.public.orders", mode="AUTO")
    crm, erp = fleet.others
    with psycopg.connect(crm.server.dsn(), autocommit=True) as conn:
        away(conn, crm, is_away=True)
        erp.sql("INSERT INTO orders VALUES (60, 1, 1, NULL)")
        for _ in range(2):
            fleet.line.tick()
        assert fleet.line.rows("one") == [(4,)]
        ((status, failures, message),) = fleet.line.sql(
            "SELECT status, consecutive_errors, last_error_message FROM pgtrickle.pgt_stream_tables "
            "WHERE pgt_name = 'joined'"
        )
        assert (status, failures) == ("ACTIVE", 0)
        assert f"database {crm.name} does not answer" in message
        away(conn, crm, is_away=False)
    crm.sql("UPDATE customers SET region = 'west' WHERE id = 1")
    fleet.settle()
    fleet.check_on_spark("joined", "DIFFERENTIAL")


def test_what_is_lost_at_an_origin_stops_the_table(
    fleet: Remote, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    crm, _ = fleet.others
    conn = make_role(fleet.home)
    name = conn.info.user
    fleet.home.sql(f"CREATE SCHEMA mine; GRANT USAGE, CREATE ON SCHEMA mine TO {name}")
    query = f"SELECT region, count(*) AS n FROM {crm.name}.public.customers GROUP BY region"
    create = "SELECT pgtrickle.create_stream_table('mine.st', %s, engine => 'spark')"
    conn.execute(create, (query,))
    fleet.line.tick()
    ((state, refusal),) = conn.execute("SELECT state, error_message FROM pgtrickle.pending_definitions()").fetchall()
    assert state == "REFUSED"
    assert "permission denied" in refusal
    crm.sql(f"GRANT SELECT (id, region) ON customers TO {name}")
    conn.execute(create, (query,))
    fleet.settle()
    assert fleet.line.rows("mine.st") == [("north", 1), ("south", 2)]
    crm.sql(f"REVOKE SELECT (region) ON customers FROM {name}; INSERT INTO customers VALUES (9, 'eva', 'north')")
    for _ in range(2):
        fleet.line.tick()
    status = "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'st'"
    ((found, message),) = fleet.line.sql(status)
    assert found == "ERROR"
    assert f"permission denied for {crm.name}.public.customers: {name} has lost SELECT on it" in message
    assert fleet.line.rows("mine.st") == [("north", 1), ("south", 2)]
    crm.sql(f"GRANT SELECT (region) ON customers TO {name}")
    conn.execute("SELECT pgtrickle.resume_stream_table('mine.st')")
    fleet.settle()
    assert fleet.line.rows("mine.st") == [("north", 2), ("south", 2)]
    crm.superuser_sql(f"DROP OWNED BY {name}")


def test_origins_forget_a_dropped_table(fleet: Remote, make_line: Callable[..., Line]) -> None:
    fleet.define("totals", JOINED)
    crm, _ = fleet.others
    assert crm.sql("SELECT reads_replica, snapshot IS NOT NULL FROM pgtrickle.pgt_readers") == [(True, True)]
    origin = make_line(crm)
    origin.plane.tidy()
    assert crm.sql("SELECT count(*) FROM pgtrickle.pgt_replicas") == [(1,)]  # it is read in another database
    fleet.home.sql("SELECT pgtrickle.drop_stream_table('totals')")
    fleet.settle()
    assert crm.sql("SELECT count(*) FROM pgtrickle.pgt_readers") == [(0,)]
    assert fleet.home.sql("SELECT count(*) FROM pgtrickle.pgt_mirrors") == [(0,)]
    origin.plane.tidy()
    assert crm.sql("SELECT count(*) FROM pgtrickle.pgt_replicas") == [(0,)]


def test_an_altered_table_of_an_origin_is_read_again(fleet: Remote) -> None:
    fleet.define("totals", JOINED, mode="AUTO")
    crm, erp = fleet.others
    crm.sql("ALTER TABLE customers RENAME region TO area; UPDATE customers SET area = 'far' WHERE id = 1")
    fleet.expect("totals", JOINED.replace("c.region", "c.area AS region", 1).replace("BY c.region", "BY c.area"))
    fleet.settle()
    fleet.check_on_spark("totals", fleet.line.last("totals")[0])
    erp.sql("ALTER TABLE orders ALTER amount TYPE int")
    for _ in range(2):
        fleet.line.tick()
    status = "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'totals'"
    ((found, message),) = fleet.line.sql(status)
    assert found == "ERROR"
    assert "column amount" in message


@pytest.mark.parametrize("notices", [False, True], ids=["at once", "later"])
def test_table_that_was_dropped_and_created_again_at_its_origin_is_adopted(fleet: Remote, notices: bool) -> None:
    fleet.define("names", "SELECT c.id, c.name FROM {0}.public.customers AS c", "AUTO")
    fleet.define("orders", "SELECT o.id FROM {1}.public.orders AS o", "AUTO")
    recreated(fleet, notices=notices)
    fleet.check_on_spark("names", "DIFFERENTIAL")
    assert fleet.line.rows("orders") == fleet.expected("orders")


def test_the_engine_decides_how_other_databases_are_read(fleet: Remote) -> None:
    fleet.define("totals", JOINED, engine="auto", mode="AUTO")
    stored = "SELECT is_stored, count(*) FROM pgtrickle.pgt_mirrors GROUP BY 1"
    assert fleet.home.sql(stored) == [(True, 2)]
    fleet.home.sql("SELECT pgtrickle.alter_stream_table('totals', engine => 'spark')")
    fleet.settle()
    fleet.check_on_spark("totals", "REINITIALIZE")
    assert fleet.home.sql(stored) == [(False, 2)]
    fleet.home.sql("SELECT pgtrickle.alter_stream_table('totals', engine => 'postgres')")
    fleet.settle()
    assert fleet.home.sql(stored) == [(True, 2)]
    change(fleet)
    fleet.settle()
    fleet.check("totals")


def test_what_spark_cannot_evaluate_is_refused_by_name(fleet: Remote) -> None:
    """Nothing falls back to PostgreSQL, which has no rows of the other database."""
    crm, erp = fleet.others
    erp.sql("CREATE TABLE odd (id int PRIMARY KEY, n numeric(10, 2)); INSERT INTO odd VALUES (1, 1)")
    for name, query in (
        ("agg", f"SELECT string_agg(name, ',') AS names FROM {crm.name}.public.customers"),
        ("odds", f"SELECT sum(n) AS s FROM {erp.name}.public.odd"),
    ):
        fleet.line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', engine => 'spark')", name, query)
    for _ in range(3):
        fleet.line.tick()
    shown = "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s"
    ((status, message),) = fleet.line.sql(shown, "agg")
    assert status == "ERROR"
    assert "Spark cannot evaluate the query: string_agg" in message
    assert fleet.line.rows("odds") == [(1,)]
    erp.sql("INSERT INTO odd VALUES (2, 'NaN')")
    for _ in range(3):
        fleet.line.tick()
    ((status, message),) = fleet.line.sql(shown, "odds")
    assert (status, "column n has values without an exact columnar representation" in message) == ("ERROR", True)
    assert fleet.line.rows("odds") == [(1,)]  # the latest exact content


def test_foreign_tables_are_read_from_replicas_of_their_origins(fleet: Remote) -> None:
    for number, table, columns in ((0, "customers", "id int, region text"), (1, "orders", "customer int, amount int")):
        foreign(fleet, number, table, columns.replace("amount int", "amount numeric(10,2)"))
    query = (
        "SELECT c.region, sum(o.amount) AS total FROM customers AS c JOIN orders AS o ON o.customer = c.id GROUP BY 1"
    )
    fleet.line.sql("SELECT pgtrickle.create_stream_table('totals', %s, 'calculated', engine => 'spark')", query)
    for _ in range(3):
        fleet.line.tick()
    assert fleet.line.rows("totals") == sorted(fleet.home.sql(query), key=repr)
    assert fleet.stored() == 0
    change(fleet)
    fleet.settle()
    assert fleet.line.last("totals")[:2] == ("DIFFERENTIAL", "COMPLETED")
    assert fleet.line.rows("totals") == sorted(fleet.home.sql(query), key=repr)
    assert fleet.home.sql("SELECT is_stored, count(*) FROM pgtrickle.pgt_mirrors GROUP BY 1") == [(False, 2)]


def test_stream_tables_below_and_above(fleet: Remote) -> None:
    """One that it reads, and one that reads it."""
    fleet.line.create("below", "SELECT region, upper(manager) AS manager FROM regions")
    crm = fleet.others[0].name
    query = (
        f"SELECT c.id, b.manager FROM {crm}.public.customers AS c LEFT JOIN public.below AS b ON b.region = c.region"
    )
    fleet.line.sql("SELECT pgtrickle.create_stream_table('middle', %s, 'calculated', engine => 'spark')", query)
    fleet.settle()
    fleet.line.create("above", "SELECT manager, count(*) AS n FROM middle GROUP BY manager")
    fleet.settle()
    assert fleet.line.rows("above") == [("SUE", 2), (None, 1)]
    fleet.home.sql("INSERT INTO regions VALUES ('north', 'ned')")
    fleet.others[0].sql("INSERT INTO customers VALUES (5, 'fay', 'north')")
    fleet.settle()
    assert fleet.line.rows("middle") == [(1, "NED"), (2, "SUE"), (3, "SUE"), (5, "NED")]
    assert fleet.line.rows("above") == [("NED", 2), ("SUE", 2)]
    fleet.line.equal("above")


def test_databases_of_two_servers(make_installed: Make, make_line: Callable[..., Line]) -> None:
    with EmbeddedPostgres.create(durable=False, settings={"max_connections": "50"}) as server:
        prepare_server(server)
        there = create_database(server, "far")
        with psycopg.connect(there.dsn) as connection:
            install(connection)
        there.sql("CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10,2), at timestamptz)")
        there.sql("INSERT INTO orders VALUES (1, 1, 2.50, now()), (2, 2, 3, NULL)")
        home, near = make_installed(), make_installed()
        near.sql("CREATE TABLE customers (id int PRIMARY KEY, name text, region text)")
        near.sql("INSERT INTO customers VALUES (1, 'ann', 'north'), (2, 'bob', 'south')")
        servers = (server.dsn(user="app", password="app"),)
        line = make_line(home, None, OriginSessions(servers))
        fleet = Remote(home, line, [near, there], make_installed)
        fleet.servers = servers
        fleet.define("totals", JOINED, mode="AUTO")
        fleet.check_on_spark("totals", "FULL")
        there.sql("INSERT INTO orders VALUES (3, 1, 10, NULL)")
        near.sql("UPDATE customers SET region = 'west' WHERE id = 2")
        fleet.settle()
        fleet.check_on_spark("totals", "DIFFERENTIAL")
        assert len(fleet.cuts("totals")) == 3
        line.close()
        there.close()


@pytest.mark.parametrize("is_quiet", [False, True], ids=["writes go on", "quiet"])
def test_origin_restored_to_an_earlier_state_at_the_same_address(
    make_installed: Make, make_line: Callable[..., Line], tmp_path: Path, is_quiet: bool
) -> None:
    with EmbeddedPostgres.create(durable=False, settings={"max_connections": "50"}) as server:
        prepare_server(server)
        there = create_database(server, "crm")
        with psycopg.connect(there.dsn) as connection:
            install(connection)
        there.sql("CREATE TABLE customers (id int PRIMARY KEY, region text); INSERT INTO customers VALUES (1, 'north')")
        home, servers = make_installed(), (server.dsn(user="app", password="app"),)
        line = make_line(home, None, OriginSessions(servers))
        fleet = Remote(home, line, [there], make_installed)
        fleet.servers = servers
        fleet.define("counted", "SELECT region, count(*) AS n FROM {0}.public.customers GROUP BY region", mode="AUTO")
        there.sql("INSERT INTO customers VALUES (2, 'south')")
        fleet.settle()
        fleet.check_on_spark("counted", "DIFFERENTIAL")
        there.close()
        server.stop()
        shutil.copytree(server.data, tmp_path / "earlier")
        server.start()
        there.sql(
            "INSERT INTO customers SELECT i, 'lost' FROM generate_series(10, 91) AS i;"
            "DELETE FROM customers WHERE id = 1"
        )
        wanted = [("lost", 82), ("south", 1)]
        until(fleet, wanted)
        put_back(server, tmp_path / "earlier")
        wanted = [("north", 1), ("south", 1)]
        if not is_quiet:  # later transactions than those that were lost
            for i in range(200, 230):
                there.sql(f"INSERT INTO customers VALUES ({i}, 'new')")
            wanted.insert(0, ("new", 30))
        until(fleet, wanted)
        reason = line.reason("counted")
        assert reason is not None
        assert reason.code is ReasonCode.ORIGIN_WENT_BACK
        there.sql("DELETE FROM customers WHERE id = 1")
        fleet.settle()
        fleet.check_on_spark("counted", "DIFFERENTIAL")
        line.close()
        there.close()


def until(fleet: Remote, wanted: list[tuple[Any, ...]]) -> None:
    """Turns until this is the content: sessions at the origin were cut, and its replica may have to be built again."""
    deadline = time.monotonic() + 120
    while fleet.line.rows("counted") != wanted:
        fleet.line.tick()
        assert time.monotonic() < deadline, (fleet.line.rows("counted"), wanted, fleet.line.last("counted"))
