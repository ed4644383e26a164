"""Processes that are stopped: shown in the inventory, logged, killed and started again without anybody's help."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.fleet.conftest import Run, Small, make_small, wait_for


def states(small: Small) -> set[tuple[str, str]]:
    return set(small.sql("SELECT kind, state FROM pgtrickle.server_worker_inventory"))


@pytest.mark.soak
@pytest.mark.slow
def test_stopped_processes_are_restarted(
    own_server: EmbeddedPostgres, spark_url: str, make_run: Callable[..., Run]
) -> None:
    one, two = make_small(own_server, "one"), make_small(own_server, "two")
    run = make_run(own_server.dsn(user="app", password="app"), spark_url)
    run.start()
    for each in (one, two):
        wait_for(each.is_current)
        wait_for(lambda each=each: each.pid("scheduler") and each.pid("pipeline"))  # type: ignore[misc]
    for kind in ("pipeline", "scheduler"):
        pid = one.pid(kind)
        os.kill(pid, signal.SIGSTOP)
        one.add(5)
        # The other database's scheduler publishes what the launcher has seen.
        wait_for(lambda kind=kind: (kind, "HUNG") in states(two))  # type: ignore[misc]
        wait_for(lambda kind=kind, pid=pid: one.pid(kind) not in (0, pid))  # type: ignore[misc]
        wait_for(one.is_current)
        wait_for(lambda: "HUNG" not in {state for _, state in states(two)})
    assert run.text().count("A process does not respond") == 2
    assert run.end()[0] == 0


@pytest.mark.soak
@pytest.mark.slow
def test_stopped_spark_is_restarted(own_server: EmbeddedPostgres, make_run: Callable[..., Run]) -> None:
    one = make_small(own_server, "one")
    run = make_run(own_server.dsn(user="app", password="app"), None)
    run.start()
    wait_for(one.is_current)
    wait_for(lambda: one.pid("spark"))
    pid = one.pid("spark")
    os.kill(pid, signal.SIGSTOP)
    one.add(5)
    wait_for(lambda: ("spark", "HUNG") in states(one))
    wait_for(lambda: one.pid("spark") not in (0, pid))
    wait_for(one.is_current)
    assert "Spark does not answer; it is killed and restarted" in run.text()
    assert run.end()[0] == 0
