"""kill -9 of our processes, again and again, under load: nothing lost, nothing twice, no manual step."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

import pytest

from tests.fleet.conftest import Run, Shop, wait_for

FEW = {"launcher": 2, "pipeline": 4, "scheduler": 10}
FIFTY = {"launcher": 5, "pipeline": 10, "scheduler": 35}
TWO_HUNDRED = {"launcher": 20, "pipeline": 50, "scheduler": 130}
SEED = 20261115


def reader_pids(shop: Shop) -> set[int]:
    rows = shop.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgtrickle/reader'")
    return {pid for (pid,) in rows}


def pid_of(shop: Shop, kind: str) -> int | None:
    """As the control plane itself says."""
    rows = shop.sql(
        "SELECT p ->> 'pid' FROM pgtrickle.pgt_runtime, jsonb_array_elements(state -> 'processes') AS p "
        "WHERE p ->> 'kind' = %s",
        kind,
    )
    return int(rows[0][0]) if rows else None


def is_inside(shop: Shop) -> bool:
    """Whether some refresh is between its first statement and its commit."""
    rows = shop.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('pgtrickle/reader', 'pgtrickle/writer') "
        "AND xact_start IS NOT NULL"
    )
    return int(rows[0][0]) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(FEW, id="few"),
        pytest.param(FIFTY, id="fifty", marks=pytest.mark.soak),
        pytest.param(TWO_HUNDRED, id="two hundred", marks=[pytest.mark.soak, pytest.mark.timeout(5400)]),
    ],
)
def test_kills_under_load_lose_nothing_and_need_nobody(shop: Shop, run: Run, kills: dict[str, int]) -> None:
    rng = random.Random(SEED)
    run.start()
    shop.wait_loaded()
    loaded = shop.refreshes()
    workload = shop.workload()
    workload.start()
    inside = 0
    try:
        victims = [kind for kind, count in kills.items() for _ in range(count)]
        rng.shuffle(victims)
        for kind in victims:
            time.sleep(rng.uniform(0.1, 1.0))
            inside += is_inside(shop)
            before = reader_pids(shop)
            if kind == "launcher":
                run.kill()
                run.start()
            elif (pid := pid_of(shop, kind)) is not None:
                with suppress(ProcessLookupError):  # it was killed a moment ago, and nobody has said so yet
                    os.kill(pid, signal.SIGKILL)
            if kind != "scheduler":
                wait_for(lambda known=before: reader_pids(shop) - known)  # type: ignore[misc]
        shop.wait_progress(12)
    finally:
        workload.stop()
    assert workload.tally.error is None
    assert workload.tally.committed > 10 * sum(kills.values())
    assert inside >= sum(kills.values()) // 10, "the kills missed the refreshes"
    assert shop.refreshes() - loaded > sum(kills.values())
    shop.verify()
    shop.check_history()
    assert run.traceback() == ""
    # What AUTO recomputes because the machine is slow or a backlog has grown is its choice, not a loss.
    loads = shop.sql(
        "SELECT action, reason_code, count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'COMPLETED' "
        "AND (action = 'REINITIALIZE' OR reason_code = 'first_load') GROUP BY action, reason_code"
    )
    assert loads == [("FULL", "first_load", 6)], "a kill must not cost a reload"
    assert run.end()[0] == 0


@pytest.mark.soak
@pytest.mark.slow
def test_kills_during_first_loads_leave_nothing_behind(shop: Shop, run: Run) -> None:
    rng = random.Random(SEED)
    workload = shop.workload()
    workload.start()
    try:
        for _ in range(6):
            before = reader_pids(shop)
            run.start()
            wait_for(lambda known=before: reader_pids(shop) - known)  # type: ignore[misc]
            time.sleep(rng.uniform(0.0, 0.6))
            run.kill()
            shop.sql("SELECT pgtrickle.repair_stream_table(%s)", rng.choice(["sales_by_country", "open_orders"]))
        run.start()
        shop.wait_loaded()
        shop.wait_progress(6)
    finally:
        workload.stop()
    shop.verify()
    shop.check_history()
    assert run.traceback() == ""
