"""What docs/howto/scaling.md shows, and the statements that operators have in their notes, while a fleet is running.

Changes as few as these need no Spark, so there is none.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.fleet.conftest import PATIENCE_S, Gate, Run, Small, make_slow, make_small, open_jobs, wait_for

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "howto" / "scaling.md").read_text("utf-8")
NOTES = (ROOT / "tests" / "postgres" / "seeds.sql").read_text("utf-8")
NO_SPARK = "sc://127.0.0.1:1"
SELDOM = "0 0 29 2 *"  # as the guide proposes for stream tables with a schedule of their own


def block(language: str) -> str:
    """The code after the paragraph about schedulers of others."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", GUIDE[GUIDE.index("## Schedules from outside") :], re.M | re.S)
    return str(text)


def noted(beginning: str) -> str:
    """The statement of the notes that begins so, to its semicolon."""
    (text,) = (t for t in re.split(r"^-- columns: .*\n", NOTES, flags=re.M) if t.startswith(beginning))
    return str(text).strip().removesuffix(";")


def is_loaded(database: Small) -> bool:
    return database.sql("SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables") == [(True,)]


def test_cron_and_airflow_refresh_and_notice_failures(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run]
) -> None:
    one = make_small(own_server, "one")
    one.sql("SELECT pgtrickle.create_stream_table('sales', 'SELECT k, sum(10 / v) AS n FROM t GROUP BY k', %s)", SELDOM)
    make_run(one.database.dsn, NO_SPARK).start(scheduler_interval_ms=600_000)  # nothing of this waits for a tick
    wait_for(lambda: one.sql("SELECT is_populated FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'sales'")[0][0])
    one.add(4)
    wait_for(one.is_current)
    wait_for(lambda: not open_jobs(one.sql))  # nothing of the first loads is left
    lines = block("").strip().splitlines()
    assert all(re.fullmatch(r"(?:\S+ +){5}psql .*", line) for line in lines)
    waiting, requesting = (line.split(maxsplit=5)[5] for line in lines)
    psql = Path(own_server.program("psql"))
    environ = {**os.environ, "DSN": one.database.dsn, "PATH": f"{psql.parent}:{os.environ['PATH']}"}
    made: dict[str, Any] = {}
    exec(block("python"), made)

    def by_cron(command: str = waiting) -> str:
        done = subprocess.run(["/bin/sh", "-c", command], env=environ, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr

    def by_python() -> str:
        try:
            made["refresh"](one.database.dsn, "public.sales")
        except psycopg.Error as error:
            return str(error)
        return ""

    rows, wanted = "SELECT k, n FROM sales ORDER BY k", "SELECT k, sum(10 / v) FROM t GROUP BY k ORDER BY k"
    for refresh in (by_cron, by_python):
        one.add(5)
        before = one.sql(rows)
        wait_for(one.is_current)  # the other table's schedule comes, this one's does not
        assert one.sql(rows) == before != one.sql(wanted)
        assert refresh() == ""
        assert one.sql(rows) == one.sql(wanted)
        one.sql("INSERT INTO t VALUES (1, 0)")
        assert "division by zero" in refresh()
        one.sql("DELETE FROM t WHERE v = 0")
        assert refresh() == ""
    one.add(5)
    wait_for(one.is_current)
    assert one.sql(rows) != one.sql(wanted)
    assert "manual_refresh" in requesting
    assert by_cron(requesting) == ""  # at once
    wait_for(lambda: one.sql(rows) == one.sql(wanted))


def test_the_notes_of_operators_tell_what_happens(own_server: EmbeddedPostgres, make_run: Callable[..., Run]) -> None:
    one, two = make_small(own_server, "one"), make_small(own_server, "two")
    make_slow(one, "slow", seconds=0.5)
    one.sql("SELECT pgtrickle.set_option('parallel_refresh_mode', 'off')")
    run = make_run(one.database.dsn, NO_SPARK)
    process = run.start(profile="offload", max_dynamic_refresh_workers=3)

    def answer(beginning: str, database: Small = one) -> list[tuple[Any, ...]]:
        return database.sql(noted(beginning))

    for database in (one, two):
        wait_for(partial(is_loaded, database))
        wait_for(database.is_current)
    one.add()
    wait_for(one.is_current)
    # Which stream tables take the longest? By their own time, though they were in one lease.
    longest = answer("SELECT st.pgt_schema")
    assert [row[1] for row in longest] == ["slow", "s"]
    assert longest[0][2] >= 0.5 > longest[1][2]
    assert longest[1][4] == 2
    # Nothing to do
    idle = [(0, 3, 1, "off")]  # one worker at a time for this database
    wait_for(lambda: answer("SELECT * FROM pgtrickle.worker_pool_status()") == idle)
    assert answer("SELECT active_workers >= max_workers AS saturated") == [(False,)]
    ((total, active, *_, scheduler, _),) = (row[:9] for row in answer("SELECT * FROM pgtrickle.health_summary()"))
    assert (total, active, scheduler) == (2, 2, "ACTIVE")
    shares = {row[0]: row[1:6] for row in answer("SELECT * FROM pgtrickle.worker_allocation_status()")}
    assert shares == {"one": (0, 0, 0, 0, 3), "two": (0, 0, 0, 0, 3)}
    kinds = [(row[0], row[1]) for row in answer("SELECT * FROM pgtrickle.server_worker_inventory")]
    assert {(kind, name) for kind, name in kinds if kind != "worker"} == {
        ("launcher", None), ("pipeline", None), ("scheduler", "one"), ("scheduler", "two"),
    }  # fmt: skip
    launcher = "SELECT pid FROM pgtrickle.server_worker_inventory WHERE kind = 'launcher'"
    assert one.sql(launcher) == [(process.pid,)]
    options = "SELECT name, value, origin FROM pgtrickle.options() WHERE origin <> 'default' ORDER BY name"
    assert one.sql(options) == [
        ("max_dynamic_refresh_workers", "3", "flag"), ("parallel_refresh_mode", "off", "set_option"),
        ("scheduler_interval_ms", "100", "flag"), ("source_cost_weight", "20", "profile"),
    ]  # fmt: skip
    # One is at work, and what waits is seen to wait
    gate = Gate(one, "gate")
    wait_for(lambda: answer("SELECT active_workers, max_workers") == [(1, 3)])
    for database in (one, two):
        database.add()
    wait_for(two.is_current)
    wait_for(lambda: answer("SELECT now() AS ts")[0][1:] == (1, 3, 1))
    wait_for(
        lambda: (
            {r[0]: r[1:4] for r in answer("SELECT * FROM pgtrickle.worker_allocation_status()")}
            == {"one": (1, 0, 1), "two": (0, 0, 0)}
        )
    )
    latest: dict[str, str] = {}
    for row in answer("SELECT * FROM pgtrickle.parallel_job_status(300)"):  # newest first
        latest.setdefault(row[13][0], row[3])
    assert (latest["public.gate"], latest["public.s"], latest["public.slow"]) == ("RUNNING", "QUEUED", "SUCCEEDED")
    pending = {row[0]: row[4] for row in answer("SELECT * FROM pgtrickle.change_buffer_sizes()")}
    assert (pending["public.s"], pending["public.slow"]) == (1, 0)
    gate.open()
    wait_for(one.is_current)
    wait_for(lambda: answer("SELECT now() AS ts")[0][1:] == (0, 3, 0))
    # Requests, and what is cleared
    before = one.sql("SELECT max(refresh_id) FROM pgtrickle.pgt_refresh_history")[0][0]
    for asking in ("SELECT pgtrickle.manual_refresh('s')", "SELECT pgtrickle.refresh_stream_table('s')"):
        one.add()
        answer(asking)
        wait_for(one.is_current)
    manual = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE refresh_id > %s AND initiated_by = 'MANUAL'"
    assert one.sql(manual, before)[0][0] >= 1
    wait_for(lambda: one.state()["cache"]["own"] >= 2)
    own = one.state()["cache"]["own"]
    assert answer("SELECT pgtrickle.clear_caches()") == [(own,)]
    wait_for(lambda: one.state()["cache"]["own"] == 0)
    assert two.state()["cache"]["own"] > 0
    assert run.end()[0] == 0


def test_a_worker_is_shown_at_once_and_no_longer_than_it_works(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run]
) -> None:
    """The state of the fleet is published once per tick, and the next tick is far away."""
    one = make_small(own_server, "one")
    make_run(one.database.dsn, NO_SPARK).start(max_dynamic_refresh_workers=3, scheduler_interval_ms=600_000)
    wait_for(lambda: is_loaded(one) and one.is_current())
    gate = Gate(one, "gate")
    pool = noted("SELECT active_workers, max_workers")
    shares = "SELECT workers_used, workers_queued, cluster_active FROM pgtrickle.worker_allocation_status()"
    wait_for(lambda: one.sql(pool) == [(1, 3)])
    assert one.sql(shares) == [(1, 0, 1)]
    gate.open()
    wait_for(lambda: one.sql("SELECT k FROM gate") == [(1,)])
    wait_for(lambda: one.sql(pool) == [(0, 3)])
    assert one.sql(shares) == [(0, 0, 0)]


def test_nothing_is_shown_of_the_control_plane_before(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run]
) -> None:
    one, pool = make_small(own_server, "one"), noted("SELECT active_workers, max_workers")
    run = make_run(one.database.dsn, NO_SPARK)
    run.start(max_dynamic_refresh_workers=3)
    wait_for(lambda: one.sql(pool) == [(0, 3)])
    run.kill()
    wait_for(lambda: one.sql(pool) == [(0, 4)])  # nobody is there: the default
    run.start(max_dynamic_refresh_workers=5)
    seen = set()
    with one.database.connect() as conn:
        deadline = time.monotonic() + PATIENCE_S
        while (0, 5) not in seen and time.monotonic() < deadline:
            seen.update(conn.execute(pool).fetchall())
    assert seen == {(0, 4), (0, 5)}


@pytest.mark.parametrize("language", ["", "python"])
def test_the_guide_has_one_example_of_each(language: str) -> None:
    assert "refresh_and_wait" in block(language)
