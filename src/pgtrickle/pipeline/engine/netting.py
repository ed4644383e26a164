"""Nets the deltas of a wave: small ones in the process of the worker (ADR 38), all others in one Spark job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.errors import PgtrickleError
from pgtrickle.model.flow import Delta
from pgtrickle.pipeline.delta_layout import NETTED_HERE_ROWS, DeltaLayout
from pgtrickle.pipeline.engine.consolidate import consolidate
from pgtrickle.pipeline.engine.frames import DeltaRows
from pgtrickle.pipeline.engine.spark import SparkEngine, WorkItem
from pgtrickle.tracing import span

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SignedRows:
    """The signed rows that were read for one stream table. `table`: its name, for traces."""

    table: str
    layout: DeltaLayout
    rows: pa.Table | DeltaRows


@dataclass(frozen=True, slots=True)
class NettingResult:
    """The net delta of one stream table, or why the Spark job failed.

    `part`: the name of this step in timings. `tables`: how many tables the time was spent for. `is_cold`: a session of
    Spark had its first job meanwhile, this one or one that it had to wait for.
    """

    delta: Delta | PgtrickleError
    part: str
    ms: float
    tables: int = 1
    is_cold: bool = False


def net_deltas(engine: SparkEngine, inputs: Sequence[SignedRows]) -> list[NettingResult]:
    """One result for each input. The caller has announced itself to the engine (`SparkEngine.announced`)."""
    results: dict[int, NettingResult] = {}
    large: dict[int, SignedRows] = {}
    for position, each in enumerate(inputs):
        if isinstance(each.rows, DeltaRows) and len(each.rows) <= NETTED_HERE_ROWS:
            results[position] = _net_in_worker(each, each.rows)
        else:
            large[position] = each
    if large:
        results |= zip(large, _net_on_spark(engine, list(large.values())), strict=True)
    else:
        engine.withdraw()  # jobs of other workers need not wait for this wave
    return [results[position] for position in range(len(inputs))]


def _net_in_worker(small: SignedRows, rows: DeltaRows) -> NettingResult:
    begun = time.perf_counter()
    with span("net", lambda: {"table": small.table}):
        delta = consolidate(rows)
    return NettingResult(delta, "net", (time.perf_counter() - begun) * 1000)


def _net_on_spark(engine: SparkEngine, large: Sequence[SignedRows]) -> list[NettingResult]:
    begun, cold_jobs = time.perf_counter(), engine.cold_jobs
    deltas: Sequence[Delta | PgtrickleError]
    try:
        # Another worker uses the slot while this one waits for Spark.
        with span("spark", lambda: {"tables": [each.table for each in large]}), engine.slot_lent():
            deltas = engine.run([WorkItem(each.layout, each.rows) for each in large])
    except PgtrickleError as error:
        deltas = [error] * len(large)
    ms = (time.perf_counter() - begun) * 1000
    is_cold = engine.cold_jobs != cold_jobs
    return [NettingResult(delta, "spark", ms, len(large), is_cold) for delta in deltas]
