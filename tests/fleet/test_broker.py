"""Two databases that want to know about one table of a third: the broker as a process, killed, stopped and away."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import create_database, prepare_server
from tests.fleet.conftest import Run, Small, make_small, open_jobs, wait_for

TICK_S = 0.5


class Readers:
    """`origin` has the table t; `one` and `two` have a stream table over it."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.origin = make_small(server, "origin")
        self.readers = []
        for name in ("one", "two"):
            reader = Small(create_database(server, name))
            with connect(reader.database.dsn, role="test") as connection:
                install(connection)
            query = "SELECT k, sum(v) AS total FROM origin.public.t GROUP BY k"
            reader.sql("SELECT pgtrickle.create_stream_table('public.s', %s, 'calculated')", query)
            self.readers.append(reader)
        self._admin = psycopg.connect(server.dsn("origin"), autocommit=True)
        self._admin.execute("CREATE EXTENSION pg_stat_statements SCHEMA public")

    def looks(self) -> int:
        """Statements that the server has run to find changes of the table."""
        row = self._admin.execute(
            "SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements "
            "WHERE query LIKE '%FROM pgtrickle_changes._broker_counts(%'"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def looks_per_tick(self, seconds: float = 6.0) -> float:
        before, began = self.looks(), time.monotonic()
        time.sleep(seconds)
        return (self.looks() - before) / (time.monotonic() - began) * TICK_S

    def is_current(self) -> bool:
        right = self.origin.sql("SELECT k, sum(v) FROM t GROUP BY k ORDER BY k")
        return all(
            reader.sql("SELECT to_regclass('s') IS NOT NULL") == [(True,)]
            and reader.sql("SELECT k, total FROM s ORDER BY k") == right
            for reader in self.readers
        )

    def settle(self) -> None:
        """All is current, and nothing is under way for some ticks."""
        wait_for(self.is_current)
        quiet = time.monotonic()
        while time.monotonic() - quiet < 3 * TICK_S:
            if any(open_jobs(reader.sql) for reader in self.readers):
                quiet = time.monotonic()
            time.sleep(0.1)

    def seconds_to_show(self) -> float:
        """From a commit until both show it."""
        self.origin.add()
        return wait_for(self.is_current)

    def is_answered(self) -> bool:
        return all(
            r.sql("SELECT detail FROM pgtrickle.health_check() WHERE check_name = 'broker' AND severity = 'OK'")
            and r.sql("SELECT 1 FROM pgtrickle.broker_status()")
            for r in self.readers
        )

    def close(self) -> None:
        self._admin.close()


@pytest.fixture
def readers() -> Iterator[tuple[Readers, EmbeddedPostgres]]:
    settings = {"fsync": "off", "max_connections": "60", "shared_preload_libraries": "pg_stat_statements"}
    with EmbeddedPostgres.create(settings=settings) as server:
        prepare_server(server)
        made = Readers(server)
        yield made, server
        made.close()


def dsn(server: EmbeddedPostgres) -> str:
    return server.dsn("origin", user="app", password="app")


def start(made: Readers, run: Run, broker: str) -> None:
    run.start(scheduler_interval_ms=int(TICK_S * 1000), enable_refresh_broker=broker)
    wait_for(lambda: all(reader.backends("scheduler") for reader in made.readers))
    wait_for(made.is_current)
    if broker == "on":
        wait_for(made.is_answered)
    made.settle()


@pytest.mark.slow
def test_two_databases_cost_one_look_per_tick_with_the_broker_and_two_without(
    readers: tuple[Readers, EmbeddedPostgres], make_run: Callable[..., Run], spark_url: str
) -> None:
    made, server = readers
    found: dict[str, float] = {}
    for broker in ("off", "on"):
        run = make_run(dsn(server), spark_url)
        start(made, run, broker)
        seconds = made.seconds_to_show()
        made.settle()
        found[broker] = made.looks_per_tick()
        print(f"broker {broker}: {found[broker]:.2f} looks per tick, a change shows after {seconds:.2f} s")
        assert bool(made.readers[0].pid("broker")) == (broker == "on")
        assert run.end()[0] == 0
        assert run.traceback() == ""
        wait_for(lambda r=run: not r.processes())  # type: ignore[misc]
    # Half as many; a busy machine stretches ticks.
    assert found["on"] / found["off"] == pytest.approx(0.5, rel=0.4)


@pytest.mark.slow
def test_a_broker_that_is_killed_or_hangs_makes_nobody_late_by_more_than_a_tick(
    readers: tuple[Readers, EmbeddedPostgres], make_run: Callable[..., Run], spark_url: str
) -> None:
    made, server = readers
    run = make_run(dsn(server), spark_url)
    start(made, run, "on")
    usual = 0.0
    for _ in range(3):
        usual = max(usual, made.seconds_to_show())
        made.settle()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        old = made.readers[0].pid("broker")
        os.kill(old, number)
        late = made.seconds_to_show()
        print(f"{number.name}: a change shows after {late:.2f} s, usually {usual:.2f} s")
        if number == signal.SIGSTOP:
            time.sleep(2 * TICK_S)
            assert made.looks_per_tick(4.0) > 1.5  # each looks for itself
            os.kill(old, signal.SIGCONT)
        else:
            wait_for(lambda o=old: made.readers[0].pid("broker") not in (0, o))  # type: ignore[misc]
        wait_for(made.is_answered)
        made.settle()
        assert made.looks_per_tick(4.0) == pytest.approx(1.0, rel=0.2)  # it is used again
        # a commit that becomes visible late, with an old LSN
        with psycopg.connect(made.origin.database.dsn) as conn:
            conn.execute("INSERT INTO t VALUES (1, 1)")
            made.seconds_to_show()
            made.settle()
            conn.commit()
            wait_for(made.is_current)
    assert run.end()[0] == 0
    assert run.traceback() == ""
    wait_for(lambda: not run.processes())
