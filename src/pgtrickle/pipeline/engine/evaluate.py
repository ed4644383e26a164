"""Evaluates a compiled query over DataFrames and writes its result to a staging table.

Executors write it in parallel, each by its own Python process. For a few rows starting these costs more than the query,
so the driver collects and writes a result that is expected to be small."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from pgtrickle.db.handover import Handover
from pgtrickle.pipeline.engine import bulk, columnar
from pgtrickle.pipeline.engine.columnar import Frame, Session
from pgtrickle.pipeline.relational.delta import WEIGHT

if TYPE_CHECKING:
    import pyarrow as pa

Inputs = Callable[[str, str], Frame]
FEW_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Stage:
    """A staging table that executors create and fill: name and type of each column."""

    target: Handover
    table: str
    columns: Sequence[tuple[str, str]]


def named(frame: Frame, names: Mapping[str, str]) -> Frame:
    """A replica's columns (c1, c2, ..., and computed ones) under the names that the query has for them."""
    return frame.select(*(f.col(column).alias(name) for column, name in names.items()))


def weighted(frame: Frame, names: Mapping[str, str]) -> Frame:
    """The same for changes, with the weight column of the compiler."""
    listed = [f.col(column).alias(name) for column, name in names.items()]
    return frame.select(*listed, f.col(columnar.WEIGHT).cast("bigint").alias(WEIGHT))


def unchanged(frame: Frame, names: Mapping[str, str]) -> Frame:
    """An empty delta with the columns of this DataFrame."""
    return named(frame, names).where(f.lit(False)).withColumn(WEIGHT, f.lit(0).cast("bigint"))


def collected(frame: Frame) -> pa.Table | None:
    """The rows, collected by the driver; None: they exceed its limit (spark.driver.maxResultSize)."""
    try:
        return frame.toArrow()
    except PySparkException as error:
        if "maxResultSize" not in str(error):
            raise
        return None


def fill(
    session: Session, build: Callable[[Session, Inputs], Frame], inputs: Inputs, stage: Stage, *, expects_few: bool
) -> None:
    """Raises Spark's exceptions. `expects_few`: if there are more rows than expected, the query is evaluated again."""
    result = build(session, inputs).toDF(*(name for name, _ in stage.columns))
    if expects_few:
        # Not as Arrow, for which the client requests another analysis of the plan.
        rows = result.limit(FEW_ROWS + 1).collect()
        if len(rows) <= FEW_ROWS:
            bulk.write_rows(rows, stage.target, stage.columns, stage.table)
            return
    bulk.write(result, stage.target, stage.columns, stage.table)
