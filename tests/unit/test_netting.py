"""Which deltas of a wave the worker nets, which ones Spark does, and what a failed job means for each."""

from __future__ import annotations

import pytest

from pgtrickle.errors import EngineLostError
from pgtrickle.model.flow import Delta
from pgtrickle.pipeline.delta_layout import ROWS
from pgtrickle.pipeline.engine.frames import DeltaRows
from pgtrickle.pipeline.engine.netting import SignedRows, net_deltas
from pgtrickle.pipeline.engine.spark import SparkEngine

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


def test_small_deltas_need_no_spark() -> None:
    engine = SparkEngine(no_spark)
    with engine.announced():
        results = net_deltas(engine, [signed("a", (1, "{x}")), signed("b", (2, "{y}"), (-1, "{y}"))])
    assert [result.delta for result in results] == [Delta([1], ["{x}"]), Delta([1], ["{y}"])]
    assert net_deltas(engine, []) == []
    assert engine.jobs == 0
    engine.close()
