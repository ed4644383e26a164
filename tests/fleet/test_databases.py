"""Many databases under one launcher: they neither mix nor wait for one another, whatever happens to one of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgtrickle.db.connect import connect
from pgtrickle.db.install import install, uninstall
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import create_database
from tests.fleet.conftest import Run, Small, make_small, open_jobs, wait_for


def superuser(server: EmbeddedPostgres, *statements: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for text in statements:
            connection.execute(text.encode())


def cut_off(server: EmbeddedPostgres, name: str) -> None:
    superuser(server, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


def wait_current(*databases: Small) -> None:
    for database in databases:
        wait_for(database.is_current)


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass


@pytest.fixture
def one(own_server: EmbeddedPostgres) -> Small:
    return make_small(own_server, "one")


@pytest.fixture
def two(own_server: EmbeddedPostgres, one: Small) -> Small:
    """Copied: the same oids, the same ids, another database."""
    return make_small(own_server, "two", template=one.name)


@pytest.fixture
def run(own_server: EmbeddedPostgres, spark_url: str, make_run: Callable[..., Run]) -> Run:
    """By a database that nothing happens to."""
    made = make_run(own_server.dsn(user="app", password="app"), spark_url)
    made.start()
    return made


def test_copies_of_one_database_do_not_mix(one: Small, two: Small, run: Run) -> None:
    three = make_small(one.database.server, "three", template=two.name)
    databases = [one, two, three]
    assert len({d.sql("SELECT pgt_id, 't'::regclass::oid FROM pgtrickle.pgt_stream_tables")[0] for d in databases}) == 1
    for number in range(1, 6):
        for factor, database in enumerate(databases, start=1):
            database.add(number * 10**factor)
    wait_current(*databases)
    found = [d.sql("SELECT k, total FROM s ORDER BY k") for d in databases]
    assert found[0] != found[1] != found[2]
    schedulers = {d.sql("SELECT DISTINCT scheduler_pid FROM pgtrickle.pgt_scheduler_jobs")[0][0] for d in databases}
    assert len(schedulers) == 3
    assert {d["name"] for d in one.state()["databases"]} == {"one", "two", "three"}


def test_a_database_that_is_created_renamed_refused_and_dropped(
    own_server: EmbeddedPostgres, one: Small, run: Run
) -> None:
    wait_current(one)
    # Created and installed while we run.
    late = Small(create_database(own_server, "late"))
    late.sql("CREATE TABLE t (k int, v int); INSERT INTO t VALUES (1, 1)")
    with connect(late.database.dsn, role="test", autocommit=True) as connection:
        install(connection)
    late.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT k, sum(v) AS total FROM t GROUP BY k', 'calculated')")
    seconds = wait_for(late.is_current)
    print(f"installed database served after {seconds:.2f} s")

    # Renamed: our sessions stand in the way of that, and are cut.
    def rename() -> bool:
        cut_off(own_server, "late")
        try:
            superuser(own_server, "ALTER DATABASE late RENAME TO later")
        except psycopg.errors.ObjectInUse:
            return False
        return True

    wait_for(rename)
    later = Small(type(late.database)(own_server, "later"))
    print(f"renamed database served after {later.seconds_to_refresh():.2f} s")
    one.seconds_to_refresh()
    wait_for(lambda: {d["name"] for d in one.state()["databases"]} == {"one", "later"})

    # No more sessions let in.
    for refuse, allow in (
        ("ALLOW_CONNECTIONS false", "ALLOW_CONNECTIONS true"),
        ("CONNECTION LIMIT 0", "CONNECTION LIMIT -1"),
    ):
        superuser(own_server, f"ALTER DATABASE later {refuse}")
        cut_off(own_server, "later")
        one.seconds_to_refresh()
        superuser(own_server, f"ALTER DATABASE later {allow}")
        seconds = later.seconds_to_refresh()
        print(f"after {refuse}: served again after {seconds:.2f} s")

    # Dropped.
    superuser(own_server, "DROP DATABASE later WITH (FORCE)")
    one.seconds_to_refresh()
    wait_for(lambda: "later" not in str(one.state()))
    one.seconds_to_refresh()
    assert run.traceback() == ""


def test_a_database_that_hangs_does_not_hold_up_the_others(one: Small, two: Small, run: Run) -> None:
    """Its sessions are stopped one by one, those that work and the scheduler's."""
    wait_current(one, two)
    two.sql(
        "CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN PERFORM pg_sleep(0.5); RETURN $1; END'"
    )
    for number in range(8):  # enough for every worker
        two.sql(f"CREATE TABLE t{number} (k int)")
        two.sql(f"INSERT INTO t{number} VALUES (1)")
        two.sql(
            "SELECT pgtrickle.create_stream_table(%s, %s, '1s', 'FULL')",
            f"s{number}",
            f"SELECT slow(k) AS k FROM t{number}",
        )
    wait_for(lambda: len(two.backends("writer")) >= 1)
    pids = [pid for role in ("scheduler", "reader", "writer") for pid in two.backends(role)]
    with stopped(pids):
        seconds = [one.seconds_to_refresh() for _ in range(5)]
        print("beside a database that hangs:", ", ".join(f"{s:.2f}" for s in seconds))
    wait_current(two)


def test_signal_ends_the_run_while_a_database_hangs(one: Small, run: Run) -> None:
    wait_current(one)
    with stopped(one.backends("scheduler")):
        status, seconds = run.end()  # before the session goes on: it stays stopped meanwhile
    print(f"ended after {seconds:.1f} s")
    assert status == 0
    wait_for(lambda: run.processes() == [])


def test_uninstalling_under_a_running_fleet_makes_no_noise(one: Small, two: Small, run: Run) -> None:
    wait_current(one, two)
    two.add()
    with connect(two.database.dsn, role="test") as connection:
        uninstall(connection)
    one.seconds_to_refresh()
    wait_for(lambda: "two" not in {p["database"] for p in one.state()["processes"]})
    assert one.backends("scheduler")
    assert two.backends("scheduler") == []
    # The second database is a copy of the first, which is said once.
    text = "\n".join(each for each in run.text().splitlines() if "runtime.database_restored" not in each)
    assert "Traceback" not in text
    assert "WARNING" not in text, text
    assert "ERROR" not in text, text
    # And again, as if nothing had been.
    with connect(two.database.dsn, role="test") as connection:
        install(connection)
    two.sql("SELECT pgtrickle.create_stream_table('s2', 'SELECT k, sum(v) AS total FROM t GROUP BY k', 'calculated')")
    wait_for(lambda: two.sql("SELECT count(*) FROM s2") != [(0,)])


def test_a_database_is_switched_off_and_on(own_server: EmbeddedPostgres, one: Small, two: Small, run: Run) -> None:
    wait_current(one, two)

    def refreshed() -> int:
        return int(one.sql("SELECT count(*) FROM pgtrickle.pgt_scheduler_jobs")[0][0])

    for off, on in (
        (
            lambda: one.sql("SELECT pgtrickle.set_option('enabled', 'off')"),
            lambda: one.sql("SELECT pgtrickle.set_option('enabled', 'on')"),
        ),
        (
            lambda: superuser(own_server, "ALTER DATABASE one SET pg_trickle.enabled = off"),
            lambda: superuser(own_server, "ALTER DATABASE one RESET pg_trickle.enabled"),
        ),
    ):
        off()
        print(f"off after {wait_for(lambda: one.state()['enabled'] is False):.2f} s")
        before = refreshed()
        one.add()
        two.seconds_to_refresh()
        assert refreshed() == before
        assert not one.is_current()
        on()
        print(f"on after {wait_for(one.is_current):.2f} s")
        wait_for(lambda: one.state()["enabled"] is True)


@pytest.mark.parametrize("scope", ["ROLE app", "DATABASE one"])
def test_time_outs_of_the_dba_do_not_concern_us(
    own_server: EmbeddedPostgres, one: Small, spark_url: str, make_run: Callable[..., Run], scope: str
) -> None:
    superuser(
        own_server,
        f"ALTER {scope} SET statement_timeout = '1ms'",
        f"ALTER {scope} SET lock_timeout = '1ms'",
        f"ALTER {scope} SET idle_in_transaction_session_timeout = '1ms'",
        f"ALTER {scope} SET idle_session_timeout = '20ms'",
        f"ALTER {scope} SET transaction_timeout = '10ms'",
    )
    run = make_run(own_server.dsn(user="app", password="app"), spark_url)
    run.start()
    with psycopg.connect(
        own_server.dsn("one"),
        autocommit=True,
        options="-c statement_timeout=0 -c transaction_timeout=0 -c idle_session_timeout=0",
    ) as connection:

        def is_current() -> bool:
            row = connection.execute(
                "SELECT (SELECT sum(total) FROM s) = (SELECT sum(v) FROM t) AND (SELECT count(*) FROM s) > 0"
            ).fetchone()
            return row == (True,)

        wait_for(is_current)
        for _ in range(3):
            connection.execute("INSERT INTO t VALUES (5, 7)")
            wait_for(is_current)
        failed = connection.execute("SELECT error_message FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED'")
        assert failed.fetchall() == []
    assert "timeout" not in run.text(), run.text()
    assert run.traceback() == ""


def test_open_jobs_of_all_are_closed_at_the_end(one: Small, two: Small, run: Run) -> None:
    wait_current(one, two)
    for number in range(10):
        one.add(number)
        two.add(number)
    assert run.end()[0] == 0
    assert open_jobs(one.sql) == open_jobs(two.sql) == []


def test_redefined_and_dropped_sources_are_noticed_although_no_row_changes(one: Small, two: Small, run: Run) -> None:
    one.sql("CREATE VIEW few AS SELECT k, v FROM t WHERE v < 0")
    one.sql("SELECT pgtrickle.create_stream_table('from_view', 'SELECT k, count(*) AS n FROM few GROUP BY k', '1d')")
    wait_current(one, two)
    wait_for(lambda: one.sql("SELECT is_populated FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'from_view'")[0][0])
    one.sql("CREATE OR REPLACE VIEW few AS SELECT k, v FROM t")
    shown = "SELECT k, n FROM from_view ORDER BY 1, 2"
    wait_for(lambda: one.sql(shown) == one.sql("SELECT k, count(*) FROM few GROUP BY k ORDER BY 1, 2"))
    assert one.sql(shown)
    one.sql("DROP TABLE t CASCADE")
    states = "SELECT DISTINCT status FROM pgtrickle.pgt_stream_tables"
    wait_for(lambda: one.sql(states) == [("ERROR",)])
    assert one.sql("SELECT status FROM pgtrickle.quick_health") == [("CRITICAL",)]
    one.sql("CREATE TABLE t (k int, v int); INSERT INTO t VALUES (7, 70); CREATE VIEW few AS SELECT k, v FROM t")
    one.sql("SELECT pgtrickle.repair_stream_table(pgt_name) FROM pgtrickle.pgt_stream_tables")
    wait_for(lambda: one.sql(states) == [("ACTIVE",)] and one.sql(shown) == [(7, 1)])
    one.add(5)
    two.add(5)
    wait_current(one, two)
