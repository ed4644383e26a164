"""Servers that go away and come back under load, sessions that are cut, an orderly end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal

import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.fleet.conftest import Run, Shop, wait_for


@pytest.mark.slow
def test_restarted_postgresql_is_found_again_and_nothing_is_lost(
    shop: Shop, run: Run, own_server: EmbeddedPostgres
) -> None:
    process = run.start()
    shop.wait_loaded()
    workload = shop.workload()
    workload.start()
    modes: tuple[Literal["fast", "immediate"], ...] = ("immediate", "fast", "immediate", "immediate", "fast")
    try:
        for number, mode in enumerate(modes):
            shop.wait_progress(6)
            time.sleep(0.13 * number)  # at another moment of the turn each time
            if number == 1:
                own_server.stop(mode)
                time.sleep(3)
                own_server.start()
            else:
                own_server.restart(mode)
        shop.wait_progress(6)
    finally:
        workload.stop()
    assert workload.tally.error is None
    assert process.poll() is None, run.text()[-2000:]
    shop.verify()
    shop.check_history()
    assert run.traceback() == ""
    # Only loads: on a busy machine AUTO may choose FULL.
    loads = shop.sql(
        "SELECT action, reason_code, count(*) FROM pgtrickle.pgt_refresh_history "
        "WHERE initiated_by = 'INITIAL' OR action = 'REINITIALIZE' GROUP BY 1, 2"
    )
    assert loads == [("FULL", "first_load", 6)], "a restart must not cost a reload"


@pytest.mark.slow
def test_sessions_that_are_cut_are_opened_again(shop: Shop, run: Run) -> None:
    run.start()
    shop.wait_loaded()
    workload = shop.workload()
    workload.start()
    try:
        for role in ("reader", "writer", "control", "%", "writer", "reader", "%"):
            shop.wait_progress(3)
            shop.sql(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE %s",
                f"pgtrickle/{role}",
            )
        shop.wait_progress(6)
    finally:
        workload.stop()
    shop.verify()
    shop.check_history()
    failed = shop.sql("SELECT error_message FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED'")
    assert failed == []  # nobody's table is at fault
    assert run.traceback() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_run_within_seconds(shop: Shop, run: Run, number: int) -> None:
    run.start()
    shop.wait_loaded()
    workload = shop.workload()
    workload.start()
    try:
        shop.wait_progress(3)
        status, _ = run.end(number)
    finally:
        workload.stop()
    assert status == 0, run.text()[-2000:]
    assert run.traceback() == ""
    wait_for(
        lambda: shop.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgtrickle/%%'") == [(0,)],
    )


def test_signal_ends_the_run_while_postgresql_is_away(shop: Shop, run: Run, own_server: EmbeddedPostgres) -> None:
    run.start()
    shop.wait_loaded()
    own_server.stop("immediate")
    time.sleep(1.5)
    status, _ = run.end()
    assert status == 0, run.text()[-2000:]
    assert run.traceback() == ""


def test_signal_ends_the_run_while_spark_is_away(shop: Shop, make_run: Callable[..., Run]) -> None:
    run = make_run(shop.dsn, "sc://127.0.0.1:9")
    run.start()
    wait_for(lambda: "pgtrickle/reader" in str(shop.sql("SELECT application_name FROM pg_stat_activity")))
    time.sleep(2)
    status, _ = run.end()
    assert status == 0, run.text()[-2000:]
    blamed = shop.sql("SELECT pgt_name FROM pgtrickle.pgt_stream_tables WHERE last_error_message IS NOT NULL")
    assert blamed == []  # Spark's absence is no table's fault


def test_small_refreshes_go_on_while_spark_is_away(shop: Shop, make_run: Callable[..., Run]) -> None:
    run = make_run(shop.dsn, "sc://127.0.0.1:9")
    run.start()
    shop.wait_loaded()
    workload = shop.workload()
    workload.start()
    try:
        shop.wait_progress(6)
    finally:
        workload.stop()
    shop.verify()
    assert shop.sql("SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED'") == [(0,)]
    status, _ = run.end()
    assert status == 0, run.text()[-2000:]


def test_signal_ends_the_run_while_spark_starts(shop: Shop, make_run: Callable[..., Run]) -> None:
    run = make_run(shop.dsn, None)
    process = run.start(spark_driver_memory_mb=1024)
    wait_for(lambda: java_below(process.pid))
    time.sleep(0.5)
    status, _ = run.end()
    assert status == 0, run.text()[-2000:]
    assert run.traceback() == ""


def java_below(pid: int) -> list[int]:
    """Java processes among the descendants of a process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue

    def descends(child: int) -> bool:
        while child in parents and child != pid:
            child = parents[child]
        return child == pid

    found = []
    for child in parents:
        try:
            if descends(child) and Path(f"/proc/{child}/exe").readlink().name == "java":
                found.append(child)
        except OSError:
            continue
    return found


def open_since(shop: Shop, moment: datetime) -> int:
    """Units that began before the moment and have not ended."""
    rows = shop.sql(
        "SELECT count(*) FROM pgtrickle.pgt_scheduler_jobs WHERE started_at < %s AND finished_at IS NULL", moment
    )
    return int(rows[0][0])


@pytest.mark.slow
def test_spark_that_is_killed_under_run_is_started_again(shop: Shop, make_run: Callable[..., Run]) -> None:
    run = make_run(shop.dsn, None)
    process = run.start(spark_driver_memory_mb=1024)
    shop.wait_loaded()
    workload = shop.workload()
    workload.start()
    try:
        for _ in range(2):
            shop.wait_progress(6)
            (java,) = java_below(process.pid)
            ((killed,),) = shop.sql("SELECT clock_timestamp()")
            os.kill(java, signal.SIGKILL)
            returned = wait_for(lambda at=killed: not open_since(shop, at))  # type: ignore[misc]
            print(f"what Spark had was returned after {returned:.2f} s")
            wait_for(lambda gone=java: java_below(process.pid) not in ([], [gone]))  # type: ignore[misc]
            shop.wait_progress(6)
    finally:
        workload.stop()
    shop.verify()
    shop.check_history()
    assert shop.sql("SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED'") == [(0,)]
    status, _ = run.end()
    assert status == 0
    wait_for(lambda: not java_below(process.pid))
    assert run.traceback() == ""
