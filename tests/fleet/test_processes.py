"""kill -9 of each process and session of a fleet under load: who is back when, what is lost (nothing), what is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.fleet.conftest import Run, Shop, Small, make_small, open_jobs, wait_for


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pids(shop: Shop) -> dict[str, int]:
    """Of the fleet's processes, as the database tells; workers are backends of PostgreSQL."""
    return dict(
        shop.sql(
            "SELECT p ->> 'kind', (p ->> 'pid')::int FROM pgtrickle.pgt_runtime, "
            "jsonb_array_elements(state -> 'processes') AS p WHERE p ->> 'kind' <> 'worker'"
        )
    )


def finished(shop: Shop) -> int:
    return int(shop.sql("SELECT count(*) FROM pgtrickle.pgt_scheduler_jobs WHERE status = 'SUCCEEDED'")[0][0])


def check_quiet_end(shop: Shop, run: Run) -> None:
    """After the load: all is right, all rows are closed, and nothing stays behind."""
    shop.verify()
    shop.check_history()
    wait_for(lambda: not open_jobs(shop.sql))
    status, _ = run.end()
    assert status == 0, run.text()[-2000:]
    assert run.traceback() == ""
    wait_for(lambda: not run.processes())


@pytest.mark.slow
def test_a_killed_scheduler_and_a_killed_pipeline_are_back_and_lose_nothing(shop: Shop, run: Run) -> None:
    run.start()
    shop.wait_loaded()
    workload = shop.workload()
    workload.start()
    try:
        shop.wait_progress(6)
        for kind in ("scheduler", "pipeline"):
            wait_for(lambda k=kind: pids(shop).get(k))  # type: ignore[misc]
            old = pids(shop)
            done = finished(shop)
            os.kill(old[kind], signal.SIGKILL)
            # The scheduler tells about the others: it is there when it says so.
            back = wait_for(lambda k=kind, o=old: pids(shop).get(k) not in (o[k], None))  # type: ignore[misc]
            resumed = back + wait_for(lambda d=done: finished(shop) > d)  # type: ignore[misc]
            print(f"{kind}: back after {back:.2f} s, refreshes again after {resumed:.2f} s")
            assert all(pid == old[k] for k, pid in pids(shop).items() if k != kind)
            shop.wait_progress(6)
    finally:
        workload.stop()
    reasons = shop.sql("SELECT DISTINCT detail FROM pgtrickle.pgt_scheduler_jobs WHERE status = 'RETRYABLE_FAILED'")
    assert {why for (why,) in reasons} <= {"its scheduler or pipeline exited", "the pipeline exited"}
    check_quiet_end(shop, run)


@pytest.mark.slow
def test_a_killed_fork_server_leaves_one_scheduler(shop: Shop, run: Run) -> None:
    process = run.start()
    shop.wait_loaded()
    old = pids(shop)["scheduler"]
    parent = int(Path(f"/proc/{old}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent != process.pid
    os.kill(parent, signal.SIGKILL)
    wait_for(lambda: pids(shop)["scheduler"] != old)
    assert not is_alive(old)
    workload = shop.workload()
    workload.start()
    shop.wait_progress(3)
    workload.stop()
    check_quiet_end(shop, run)


@pytest.mark.soak
@pytest.mark.slow
def test_sessions_that_the_server_loses_are_opened_again(shop: Shop, run: Run) -> None:
    """SIGTERM to one backend at a time, while it works."""
    run.start()
    shop.wait_loaded()
    workload = shop.workload()
    workload.start()
    before = pids(shop)
    try:
        for role in ("scheduler", "reader", "writer", "launcher") * 2:
            shop.wait_progress(3)
            done = finished(shop)
            shop.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s "
                "ORDER BY xact_start LIMIT 1",
                f"pgtrickle/{role}",
            )
            resumed = wait_for(lambda d=done: finished(shop) > d)  # type: ignore[misc]
            print(f"{role}'s session: refreshes again after {resumed:.2f} s")
    finally:
        workload.stop()
    assert pids(shop) == before  # no process had to end for it
    assert shop.sql("SELECT error_message FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED'") == []
    check_quiet_end(shop, run)


@pytest.mark.slow
def test_a_crashed_backend_takes_the_server_down_and_we_come_back(
    shop: Shop, run: Run, own_server: EmbeddedPostgres
) -> None:
    """kill -9 of a session makes PostgreSQL restart all of them."""
    run.start()
    shop.wait_loaded()
    workload = shop.workload()
    workload.start()
    try:
        for role in ("writer", "reader", "scheduler"):
            shop.wait_progress(3)
            rows = shop.sql("SELECT pid FROM pg_stat_activity WHERE application_name = %s", f"pgtrickle/{role}")
            os.kill(rows[0][0], signal.SIGKILL)
            away = wait_for(lambda p=rows[0][0]: not is_alive(p) and shop.sql("SELECT 1"))  # type: ignore[misc]
            done = finished(shop)
            back = wait_for(lambda d=done: finished(shop) > d)  # type: ignore[misc]
            print(f"{role}'s backend: server back after {away:.2f} s, refreshes {back:.2f} s later")
    finally:
        workload.stop()
    check_quiet_end(shop, run)


@pytest.mark.slow
def test_a_killed_launcher_takes_its_children_along_and_a_standby_takes_over(
    shop: Shop, run: Run, make_run: Callable[..., Run], spark_url: str
) -> None:
    run.start()
    shop.wait_loaded()
    standby = make_run(shop.dsn, spark_url)
    standby.start()
    wait_for(lambda: "this one is on standby" in standby.text())
    directories = set(Path("/tmp").glob("pgtrickle-run-*"))
    workload = shop.workload()
    workload.start()
    try:
        shop.wait_progress(3)
        done, first = finished(shop), pids(shop)
        run.kill()
        ended = wait_for(lambda: not run.processes())
        taken = ended + wait_for(lambda: "This launcher is active" in standby.text())
        resumed = taken + wait_for(lambda: finished(shop) > done)
        print(f"children ended after {ended:.2f} s, lock taken {taken:.2f} s, refreshes again {resumed:.2f} s")
        wait_for(lambda: pids(shop)["launcher"] != first["launcher"])
        shop.wait_progress(3)
    finally:
        workload.stop()
    # Whoever starts next finds what the killed one left, and takes it away.
    run.start()
    wait_for(lambda: run.text().count("this one is on standby") == 1)
    assert len(directories & set(Path("/tmp").glob("pgtrickle-run-*"))) < len(directories)
    assert run.end()[0] == 0
    check_quiet_end(shop, standby)


@pytest.mark.slow
def test_two_launchers_never_both_refresh(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str
) -> None:
    """Also where they came in by different databases, whose locks do not meet."""
    small, other = make_small(own_server, "small"), make_small(own_server, "other")
    runs = [make_run(d.database.dsn, spark_url) for d in (small, other)]
    for each in runs:
        each.start()
    for database in (small, other):
        wait_for(database.is_current)
    for _ in range(10):
        small.seconds_to_refresh()
    assert len(small.sql("SELECT DISTINCT scheduler_pid FROM pgtrickle.pgt_scheduler_jobs")) == 1
    holder = small.pid("launcher")
    (active,) = [each for each in runs if each.process is not None and each.process.pid == holder]
    active.kill()
    seconds = small.seconds_to_refresh()
    print(f"the other launcher refreshed after {seconds:.2f} s")
    rows = small.sql(
        "SELECT scheduler_pid, min(job_id), max(job_id) FROM pgtrickle.pgt_scheduler_jobs GROUP BY 1 ORDER BY 2"
    )
    assert len(rows) == 2
    assert rows[0][2] < rows[1][1]  # one after the other
    assert open_jobs(small.sql) == []


def test_what_a_dead_process_left_open_is_closed(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str
) -> None:
    small: Small = make_small(own_server, "small")
    small.sql(
        "INSERT INTO pgtrickle.pgt_scheduler_jobs (unit_key, unit_kind, members, status, scheduler_pid) "
        "VALUES ('1', 'singleton', '{1}', 'QUEUED', 1), ('1', 'singleton', '{1}', 'RUNNING', 1)"
    )
    make_run(small.database.dsn, spark_url).start()
    wait_for(small.is_current)
    assert small.sql("SELECT status FROM pgtrickle.pgt_scheduler_jobs WHERE scheduler_pid = 1 ORDER BY job_id") == [
        ("CANCELLED",),
        ("RETRYABLE_FAILED",),
    ]
