"""Loads: the whole content of a stream table, read at the snapshot, staged, and put in place of what was there."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

from pgtrickle.apply import bags, groups, topk
from pgtrickle.apply.stage import drop_stage, stage_arrow
from pgtrickle.apply.target import reshape
from pgtrickle.db.copy import read_batches
from pgtrickle.define.author_query import read_load
from pgtrickle.refresh.bulk_load import stage_by_executors
from pgtrickle.refresh.stages import PlannedRefresh, timed

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection
    from pgtrickle.define.compile import Compiled
    from pgtrickle.pipeline.engine.spark import SparkEngine


def stage_load(
    reader: Connection, writer: Connection, engine: SparkEngine, planned: PlannedRefresh, bulk_bytes: int
) -> str:
    """The table's whole content from the snapshot: read, given its identity by Spark (not a mirror), staged.

    By executors where the sources are large; else here, batch by batch.
    """
    state = planned.compiled.groups
    columns = state.load_columns() if state is not None else bags.load_columns(planned.compiled.target)
    if reader is writer:  # one session cannot copy out and in at a time
        return stage_arrow(writer, columns, list(_identified(reader, engine, planned)), pgt_id=planned.table.pgt_id)
    begun = time.perf_counter()
    stage: str | None = None
    if planned.place is None:  # executors would read as us
        stage = stage_by_executors(reader, writer, engine, planned.table, planned.compiled, at_least_bytes=bulk_bytes)
    if stage is not None:
        planned.timings.add("executors", (time.perf_counter() - begun) * 1000)
        return stage
    # Closed inside the savepoint: a COPY that was left half-way has to end before the connection is used again.
    with reader.transaction(), closing(_identified(reader, engine, planned)) as batches:
        return stage_arrow(writer, columns, batches, pgt_id=planned.table.pgt_id)


def replace_rows(writer: Connection, planned: PlannedRefresh, stage: str) -> tuple[int, int]:
    """The rows that differ; how many came and went."""
    reshape(writer, planned.compiled.target)
    if planned.compiled.kept is not None:
        rows = topk.replace_kept(writer, planned.compiled.kept, stage)
    elif planned.compiled.groups is not None:
        rows = groups.replace_groups(writer, planned.compiled.groups, stage)
    else:
        rows = bags.replace_staged(writer, planned.compiled.target, stage)
    drop_stage(writer, stage)
    return rows


def read_refill(reader: Connection, engine: SparkEngine, planned: PlannedRefresh) -> list[pa.Table]:
    """The first rows of a LIMIT, in the snapshot that the changes were read in."""
    with closing(read_batches(reader, planned.compiled.load_sql, _types(planned.compiled))) as batches:
        return [engine.identify(batch) for batch in batches]


def _read(reader: Connection, planned: PlannedRefresh) -> Generator[pa.Table, None, None]:
    sql, types = planned.compiled.load_sql, _types(planned.compiled)
    if planned.place is None:
        return read_batches(reader, sql, types)
    return read_load(planned.place, planned.table, sql, planned.compiled.copies, types, planned.compiled.settings)


def _identified(reader: Connection, engine: SparkEngine, planned: PlannedRefresh) -> Generator[pa.Table, None, None]:
    with closing(_read(reader, planned)) as batches:
        while True:
            with timed(planned, "read"):
                batch = next(batches, None)
            if batch is None:
                return
            if not planned.compiled.target.is_mirror:
                with timed(planned, "spark"):
                    batch = engine.identify(batch)
            with timed(planned, "stage"):
                yield batch


def _types(compiled: Compiled) -> list[pa.DataType]:
    """Columns of a load statement: the row; or key, number of rows, state."""
    import pyarrow as pa

    if compiled.groups is None:
        return [pa.string()]
    return [pa.string(), pa.int64(), *(pa.string() for _ in compiled.groups.state)]
