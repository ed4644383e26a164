"""Evaluates a DataFrame, discards its result, and returns the metrics of each operator of Spark's plan."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as f

from pgtrickle.errors import InvariantError
from pgtrickle.model.operators import Operator
from pgtrickle.pipeline.engine.columnar import Frame

_ROWS = ("numOutputRows", "shuffleRecordsWritten")
_ADAPTER = "InputAdapter"  # connects generated code with its input
_MS_PER_UNIT = {"timing": 1.0, "nsTiming": 1e-6}  # types of Spark's metrics that are times


@dataclass(frozen=True, slots=True)
class Executed:
    rows: int
    ms: float
    plan: Operator


def executed(frame: Frame) -> Executed:
    """Computes every column of every row. The plan has an additional count at the top."""
    digest = f.xxhash64(*(f.col(f"`{name}`") for name in frame.columns)) if frame.columns else f.lit(0)
    counted = frame.select(digest.alias("h")).agg(f.count(f.lit(1)).alias("n"), f.max("h").alias("h"))
    begun = time.perf_counter()
    ((rows, _),) = counted.collect()
    ms = (time.perf_counter() - begun) * 1000
    info = counted.executionInfo
    if info is None or info.metrics is None:
        raise InvariantError("Spark has reported no metrics of a plan that it has executed")
    root, nodes = info.metrics.extract_graph()
    return Executed(int(rows), ms, _operator(nodes[root], nodes))


def _operator(node: Any, nodes: Mapping[int, Any]) -> Operator:
    """The operator of a node of pyspark.sql.metrics.CollectedMetrics."""
    inputs = tuple(_operator(nodes[each], nodes) for each in node.children if each != node.id)  # the root names itself
    if node.name == _ADAPTER and len(inputs) == 1:
        return inputs[0]
    rows = next((int(m.value) for m in node.metrics if m.name in _ROWS), None)
    times = [m.value * _MS_PER_UNIT[m.metric_type] for m in node.metrics if m.metric_type in _MS_PER_UNIT]
    return Operator(node.name.strip(), rows, sum(times) if times else None, inputs)
