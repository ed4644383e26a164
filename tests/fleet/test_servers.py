"""Standby servers, several servers, and how a run ends while something is under way."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.server_process import private_directory
from tests.conftest import Database, prepare_server
from tests.fleet.conftest import Gate, Run, Small, make_slow, make_small, open_jobs, wait_for


@pytest.fixture
def standby(own_server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A replica of `own_server`, taken and started when it is asked for."""
    user = own_server._user
    root = private_directory("pgtrickle-pg-", need_mib=300, user=user)
    if user is not None:
        os.chown(root, *user)
    copy = EmbeddedPostgres(root, own_server._home, own_server.password, user, None, {})
    done = subprocess.run(
        [
            own_server.program("pg_basebackup"),
            f"--pgdata={copy.data}",
            "--dbname=" + make_conninfo(own_server.dsn()),
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        ],
        user=user[0] if user else None,
        group=user[1] if user else None,
        extra_groups=None if user is None else [],
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with copy:
        yield copy


@pytest.fixture
def one(own_server: EmbeddedPostgres) -> Small:
    return make_small(own_server, "one")


def test_a_standby_is_left_alone_until_it_is_promoted(
    own_server: EmbeddedPostgres, one: Small, standby: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str
) -> None:
    copy = Small(Database(standby, "one"))
    wait_for(lambda: copy.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(1,)])
    run = make_run(standby.dsn(user="app", password="app"), spark_url)
    run.start(standby_check_s=1)
    wait_for(lambda: "The server is a standby" in run.text())
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="this server is a standby"):
        copy.sql("SELECT pgtrickle.refresh_stream_table('s')")
    assert copy.backends("scheduler") == []
    one.add(5)
    wait_for(lambda: copy.sql("SELECT count(*) FROM t") == one.sql("SELECT count(*) FROM t"))
    own_server.stop()
    with psycopg.connect(standby.dsn(), autocommit=True) as connection:
        connection.execute("SELECT pg_promote()")
    seconds = wait_for(copy.is_current)
    print(f"refreshed {seconds:.2f} s after the promotion")
    copy.seconds_to_refresh()
    assert run.text().count("WARNING") == 0, run.text()
    assert run.end()[0] == 0


def test_one_fleet_for_two_servers(
    own_server: EmbeddedPostgres, one: Small, make_run: Callable[..., Run], spark_url: str
) -> None:
    second = EmbeddedPostgres.create(durable=False)
    with second:
        prepare_server(second)
        other = make_small(second, "one")  # even the names are the same
        run = make_run([one.database.dsn, other.database.dsn], spark_url)
        run.start()
        for database in (one, other):
            wait_for(database.is_current)
        other.add(100)
        one.seconds_to_refresh()
        wait_for(other.is_current)
        assert one.sql("SELECT * FROM s") != other.sql("SELECT * FROM s")
        assert len([p for p in one.state()["processes"] if p["kind"] == "scheduler"]) == 2
        second.stop("immediate")
        for _ in range(3):
            one.seconds_to_refresh()
        second.start()
        print(f"server back: refreshed after {other.seconds_to_refresh():.2f} s")
        assert run.end()[0] == 0
        assert open_jobs(one.sql) == open_jobs(other.sql) == []
    assert run.traceback() == ""


def test_what_runs_may_finish_and_what_waits_is_taken_back(
    one: Small, make_run: Callable[..., Run], spark_url: str
) -> None:
    one.sql("SELECT pgtrickle.set_option('parallel_refresh_mode', 'off')")
    run = make_run(one.database.dsn, spark_url)
    run.start()
    wait_for(one.is_current)
    gate = Gate(one, "crawl")
    wait_for(lambda: ("RUNNING",) in one.sql("SELECT status FROM pgtrickle.pgt_scheduler_jobs"))
    time.sleep(0.5)
    one.add()  # waits behind it
    wait_for(lambda: ("QUEUED",) in one.sql("SELECT status FROM pgtrickle.pgt_scheduler_jobs"))
    opening = threading.Timer(1.0, gate.open)  # after the signal
    opening.start()
    status, seconds = run.end()
    opening.join()
    print(f"ended after {seconds:.2f} s")
    assert status == 0
    assert one.sql("SELECT count(*) FROM crawl") == [(1,)]
    assert open_jobs(one.sql) == []
    last = one.sql("SELECT status, detail FROM pgtrickle.pgt_scheduler_jobs ORDER BY job_id DESC LIMIT 2")
    assert last == [("CANCELLED", "the scheduler took it back"), ("SUCCEEDED", None)]
    wait_for(lambda: run.processes() == [])


CRAWL_S = 300.0  # longer than any wait of a busy machine


def test_a_second_signal_ends_it_at_once(one: Small, make_run: Callable[..., Run], spark_url: str) -> None:
    run = make_run(one.database.dsn, spark_url)
    process = run.start()
    wait_for(one.is_current)
    make_slow(one, "crawl", seconds=CRAWL_S)
    wait_for(lambda: ("RUNNING",) in one.sql("SELECT status FROM pgtrickle.pgt_scheduler_jobs"))
    process.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert process.poll() is None
    _, seconds = run.end()
    assert seconds < CRAWL_S / 2  # it did not wait for the refresh
    wait_for(lambda: run.processes() == [])
    # The server ends the statement of a client that has gone.
    crawls = "SELECT FROM pg_stat_activity WHERE application_name LIKE 'pgtrickle/%' AND state = 'active'"
    assert wait_for(lambda: one.sql(crawls) == []) < CRAWL_S / 2
    # What was under way is closed by the next.
    one.sql("SELECT pgtrickle.drop_stream_table('crawl')")
    run.start()
    one.seconds_to_refresh()
    assert one.sql("SELECT count(*) FROM pgtrickle.pgt_scheduler_jobs WHERE status = 'RUNNING'") == [(0,)]
