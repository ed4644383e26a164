"""What goes wrong is noticed, says so and ends exact: hands in the table, a dead Spark, failures, big deltas."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pgtrickle.errors import EngineLostError, TransientError
from pgtrickle.model.reasons import ReasonCode
from pgtrickle.pipeline.engine import netting
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh import deltas
from pgtrickle.refresh.job import Outcome
from pgtrickle.servers.spark_address import SparkUrlWaiter
from pgtrickle.servers.spark_keeper import SparkSupervisor
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.line import Line

SCHEMA = """
CREATE TABLE kind (id int PRIMARY KEY, name text);
CREATE TABLE item (id int PRIMARY KEY, kind int, qty int, note text);
INSERT INTO kind SELECT i, 'k' || i FROM generate_series(1, 5) AS i;
INSERT INTO item SELECT i, 1 + i % 5, nullif(i % 4, 0), 'n' || i % 3 FROM generate_series(1, 200) AS i;
"""
QUERIES = {
    "bag": "SELECT kind, qty, note FROM item",
    "totals": "SELECT kind, count(*) AS n, sum(qty) AS q, min(qty) AS lo FROM item GROUP BY kind",
    "joined": "SELECT i.id, k.name, i.qty FROM item AS i JOIN kind AS k ON k.id = i.kind",
    "one_column": "SELECT qty FROM item",
}
MakeLine = Callable[..., Line]


def turn(line: Line) -> list[Outcome]:
    outcomes = line.tick()
    assert [o.error for o in outcomes if o.error] == []
    return outcomes


def status(line: Line, name: str) -> tuple[str, int, str | None]:
    rows = line.sql(
        "SELECT status, consecutive_errors, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s",
        name,
    )
    return rows[0][0], int(rows[0][1]), rows[0][2]


def create_all(line: Line, mode: str = "DIFFERENTIAL") -> None:
    line.sql(SCHEMA)
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", name, query, mode)
    turn(line)
    for name in QUERIES:
        line.check(name, "FULL")


@pytest.fixture
def shop(line: Line) -> Line:
    create_all(line)
    return line


# -- sizes of work ----------------------------------------------------------------------------------------------------


def test_bulk_path_gives_the_same_rows(shop: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deltas, "SMALL_ROWS", 3)
    changes = (
        "INSERT INTO item SELECT i, 1 + i % 6, nullif(i % 7, 0), nullif('n' || i % 5, 'n2') "
        "FROM generate_series(201, 900) AS i",
        "UPDATE item SET qty = qty + 1, note = NULL WHERE id % 3 = 0; UPDATE kind SET name = NULL WHERE id = 2",
        "DELETE FROM item WHERE id % 2 = 0",
        r"UPDATE item SET note = E'a,\"b\"\n\\.' WHERE id % 5 = 0; INSERT INTO item VALUES (0, NULL, NULL, '')",
        "DELETE FROM item",
        "INSERT INTO item SELECT i, 1, NULL, NULL FROM generate_series(1, 50) AS i",
    )
    for change in changes:
        shop.sql(change)
        turn(shop)
        for name in QUERIES:
            shop.check(name)


def test_auto_takes_full_beyond_the_change_ratio_and_says_so(
    installed: Database, make_line: Callable[..., Line]
) -> None:
    line = make_line(installed, Settings(prediction_ratio=100))  # however quick the first load is
    line.sql(
        "CREATE TABLE item (id int PRIMARY KEY, kind int, qty int); "
        "INSERT INTO item SELECT i, i % 9, i % 5 FROM generate_series(1, 20000) AS i; ANALYZE item"
    )
    line.create("totals", "SELECT kind, count(*) AS n, sum(qty) AS q FROM item GROUP BY kind")
    line.sql("UPDATE item SET qty = 7 WHERE id <= 1000")
    turn(line)
    line.check("totals")
    line.sql("UPDATE item SET qty = 8 WHERE id <= 2000")
    turn(line)
    line.check("totals", "FULL")
    reason = line.reason("totals")
    assert reason is not None
    assert reason.code == ReasonCode.MAX_CHANGE_RATIO
    assert "4000 changes in 20000 source rows exceed differential_max_change_ratio" in str(reason)
    line.sql("SELECT pgtrickle.alter_stream_table('totals', refresh_mode => 'DIFFERENTIAL')")
    turn(line)
    line.sql("UPDATE item SET qty = 9")
    turn(line)
    line.check("totals")


# -- hands in the table -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by_hand", "change"),
    [
        ("DELETE FROM bag WHERE kind = 2", "DELETE FROM item WHERE kind = 2"),
        ("UPDATE bag SET qty = 99 WHERE kind = 2", "UPDATE item SET qty = 1 WHERE kind = 2"),
        ("DELETE FROM bag", "DELETE FROM item WHERE id < 100"),
        ("UPDATE bag SET __pgt_row_id = 1", "DELETE FROM item WHERE id = 50"),
        ("INSERT INTO bag SELECT * FROM bag; DELETE FROM bag WHERE kind = 3", "UPDATE item SET kind = 1 WHERE id = 2"),
    ],
)
def test_rows_changed_by_hand_end_in_a_reload(shop: Line, by_hand: str, change: str) -> None:
    shop.sql("SELECT pgtrickle.protect_stream_table('bag', false)")
    shop.sql(by_hand)
    shop.sql(change)
    failed = [o for o in shop.tick() if o.error is not None]
    assert [o.table.name for o in failed] == ["bag"]
    now, errors, message = status(shop, "bag")
    assert (now, errors) == ("ACTIVE", 1)
    assert "rows had to be deleted from public.bag" in (message or "")
    for name in ("totals", "joined"):
        shop.check(name)
    turn(shop)
    shop.check("bag", "REINITIALIZE")
    assert "rows had to be deleted" in (shop.last("bag")[2] or "")
    assert status(shop, "bag") == ("ACTIVE", 0, None)
    shop.sql("INSERT INTO item VALUES (1001, 2, 3, 'x')")
    turn(shop)
    shop.check("bag")


def test_group_changed_by_hand_is_mended_by_its_next_change_or_by_repair(shop: Line) -> None:
    shop.sql("SELECT pgtrickle.protect_stream_table('totals', false)")
    shop.sql("UPDATE totals SET n = 999 WHERE kind = 2; DELETE FROM totals WHERE kind = 3")
    shop.sql("INSERT INTO totals SELECT * FROM totals WHERE kind = 4")
    shop.sql("UPDATE item SET qty = 5 WHERE id IN (1, 2)")
    turn(shop)
    assert shop.sql("SELECT count(*) FROM totals WHERE kind IN (2, 3)") == [(2,)]
    shop.sql("SELECT pgtrickle.repair_stream_table('totals')")
    turn(shop)
    shop.check("totals", "REINITIALIZE")


def test_state_that_does_not_fit_is_noticed(shop: Line) -> None:
    shop.sql("DELETE FROM item WHERE kind = 2 AND id > 20")
    turn(shop)
    identity = shop.sql("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'totals'")[0][0]
    shop.sql(f"UPDATE pgtrickle_changes.state_{identity} SET n = 0")
    shop.sql("DELETE FROM item WHERE kind = 2")
    assert [o.table.name for o in shop.tick() if o.error] == ["totals"]
    assert "negative row count" in (status(shop, "totals")[2] or "")
    turn(shop)
    shop.check("totals", "REINITIALIZE")
    shop.sql("INSERT INTO item VALUES (1001, 2, 3, 'x')")
    turn(shop)
    shop.check("totals")


# -- failures in a row ------------------------------------------------------------------------------------------------


def test_transient_failures_in_a_row_never_suspend(
    installed: Database, make_line: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = make_line(installed, Settings(max_consecutive_errors=3))
    create_all(line)
    apply = line.plane.worker.refresher._apply_all

    def failing(jobs: Any, stages: Any) -> dict[int, tuple[int, int]]:
        if any(job.planned.table.name == "totals" for job in jobs):
            raise TransientError("no luck today")
        return apply(jobs, stages)

    line.sql("INSERT INTO item VALUES (1001, 2, 3, 'x')")
    with monkeypatch.context() as patched:
        patched.setattr(line.plane.worker.refresher, "_apply_all", failing)
        for number in range(1, 6):
            assert [o.table.name for o in line.tick() if o.error] == ["totals"]
            assert status(line, "totals")[:2] == ("ACTIVE", number)
        for name in ("bag", "joined"):
            line.check(name)
        line.sql("DELETE FROM item WHERE id = 7")
        assert [o.table.name for o in line.tick() if o.error] == ["totals"]
    assert "no luck today" in (status(line, "totals")[2] or "")
    assert line.last("totals")[:2] == ("DIFFERENTIAL", "FAILED")
    line.plane.tidy()
    turn(line)
    line.check("totals")
    assert status(line, "totals") == ("ACTIVE", 0, None)


# -- Spark dies -------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_spark() -> Iterator[SparkSupervisor]:
    keeper = SparkSupervisor(Settings(spark_driver_memory_mb=1024))
    keeper.start()
    yield keeper
    keeper.stop()


def no_spark() -> str:
    raise EngineLostError("Spark does not answer")


def test_without_spark_small_refreshes_go_on(installed: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SparkEngine(no_spark)
    line = Line(installed.dsn, engine)
    try:
        create_all(line)
        line.sql("INSERT INTO item VALUES (1001, 2, 3, 'x'); DELETE FROM item WHERE kind = 1")
        assert all(outcome.error is None for outcome in line.tick())
        for name in QUERIES:
            line.check(name)
        assert engine.jobs == 0
        # They did not wait for Spark, so they are samples of what they cost.
        assert line.sql("SELECT bool_or(is_cold) FROM pgtrickle.pgt_refresh_history") == [(False,)]
        line.sql("DELETE FROM item WHERE id = 1001")
        with monkeypatch.context() as patch:
            patch.setattr(netting, "NETTED_HERE_ROWS", 0)  # as a large delta, which needs Spark
            outcomes = line.tick()
        assert {o.table.name: type(o.error) for o in outcomes} == dict.fromkeys(QUERIES, EngineLostError)
        turn(line)
        for name in QUERIES:
            line.check(name)
    finally:
        line.close()
        engine.close()


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_spark_killed_in_a_wave_leaves_no_partial_effect(
    installed: Database, own_spark: SparkSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SparkEngine(SparkUrlWaiter(own_spark.address, 60, 60, threading.Event()))
    line = Line(installed.dsn, engine)
    try:
        create_all(line)
        first = own_spark.address()
        before = {name: (line.rows(name), line.refreshes(name)) for name in QUERIES}
        line.sql("INSERT INTO item VALUES (1001, 2, 3, 'x'); DELETE FROM item WHERE kind = 1")
        monkeypatch.setattr(netting, "NETTED_HERE_ROWS", 0)  # a delta of this size would not need Spark
        run = engine.run
        killed: list[bool] = []

        def run_without_spark(items: Any) -> Any:
            if not killed:
                server = own_spark._server
                assert server is not None
                server.kill()
                killed.append(True)
            return run(items)

        monkeypatch.setattr(engine, "run", run_without_spark)
        outcomes = line.tick()
        assert {o.table.name: type(o.error) for o in outcomes} == dict.fromkeys(QUERIES, EngineLostError)
        assert {name: (line.rows(name), line.refreshes(name)) for name in QUERIES} == before
        assert {status(line, name) for name in QUERIES} == {("ACTIVE", 0, None)}  # no table's fault
        while own_spark.address() in (None, first):
            time.sleep(0.1)
        turn(line)
        for name in QUERIES:
            line.check(name)
            assert line.refreshes(name) == before[name][1] + 1
    finally:
        line.close()
        engine.close()
