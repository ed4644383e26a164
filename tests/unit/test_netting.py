"""Which deltas of a wave the worker nets, which ones Spark does, and what a failed job means for each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pgtrickle.errors import EngineLostError
from pgtrickle.model.flow import Delta
from pgtrickle.pipeline.delta_layout import ROWS
from pgtrickle.pipeline.engine.frames import DeltaRows
from pgtrickle.pipeline.engine.netting import SignedRows, net_deltas
from pgtrickle.pipeline.engine.spark import BATCH_ROWS, SparkEngine, WorkItem

pytestmark = pytest.mark.unit


def no_spark() -> str:
    raise EngineLostError("Spark does not answer")


def signed(table: str, *rows: tuple[int, str]) -> SignedRows:
    return SignedRows(table, ROWS, DeltaRows(ROWS, rows))


def test_a_failed_spark_job_fails_only_the_deltas_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgtrickle.pipeline.engine.netting.NETTED_HERE_ROWS", 2)
    engine = SparkEngine(no_spark)
    large = [(1, "{a}"), (1, "{b}"), (-1, "{b}")]
    results = net_deltas(engine, [signed("l", *large), signed("s", (1, "{a}"), (-1, "{a}")), signed("m", *large)])
    engine.close()
    first, small, last = results
    assert (small.delta, small.part, small.tables, small.is_cold) == (Delta([], []), "net", 1, False)
    for failed in (first, last):
        assert isinstance(failed.delta, EngineLostError)
        assert (failed.part, failed.tables, failed.is_cold) == ("spark", 2, True)


class Sessions(SparkEngine):
    """Opens sessions that do nothing; the job of a table with more than BATCH_ROWS ends when `gate` is set."""

    def __init__(self) -> None:
        super().__init__(no_spark)
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)  # jobs that wait for it

    def _connected(self, *, bulk: bool) -> Any:
        return self._sessions.setdefault(bulk, object())

    def _job(self, items: Sequence[WorkItem]) -> list[Delta]:
        is_bulk = len(items[0].delta_rows) > BATCH_ROWS
        with self._session(bulk=is_bulk):
            if is_bulk:
                self.begun.release()
                assert self.gate.wait(60)
        return [Delta([], []) for _ in items]


def test_a_delta_that_waits_for_the_first_job_of_another_one_is_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgtrickle.pipeline.engine.netting.NETTED_HERE_ROWS", 0)
    engine = Sessions()
    small, large = signed("s", (1, "{a}")), signed("l", *[(1, "{a}")] * (BATCH_ROWS + 1))
    assert [r.is_cold for _ in range(2) for r in net_deltas(engine, [small])] == [True, False]
    assert (engine.is_warm(bulk=False), engine.is_warm(bulk=True)) == (True, False)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(net_deltas, engine, [large])  # bulk: cold
        assert engine.begun.acquire(timeout=60)
        same = threads.submit(net_deltas, engine, [small, large])  # one of two needs a session whose first job goes on
        assert engine.begun.acquire(timeout=60)
        engine.gate.set()
        assert [r.is_cold for r in (*first.result(60), *same.result(60))] == [True, True, True]
    assert [r.is_cold for r in net_deltas(engine, [small, large])] == [False, False]
    engine.close()


def test_small_deltas_need_no_spark() -> None:
    engine = SparkEngine(no_spark)
    with engine.announced():
        results = net_deltas(engine, [signed("a", (1, "{x}")), signed("b", (2, "{y}"), (-1, "{y}"))])
    assert [result.delta for result in results] == [Delta([1], ["{x}"]), Delta([1], ["{y}"])]
    assert net_deltas(engine, []) == []
    assert engine.jobs == 0
    engine.close()
