"""Decides who loads rows of another database: the driver in batches, or, if the sources are large, Spark's executors in
parallel."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgtrickle.apply.bags import LOAD_COLUMNS
from pgtrickle.apply.stage import analysed, claim_stage
from pgtrickle.db.handover import hand_over
from pgtrickle.db.statements import statement
from pgtrickle.model.catalog import StreamTable
from pgtrickle.pipeline.engine.split import split
from pgtrickle.pipeline.executor_errors import ExecutorsUnableError
from pgtrickle.refresh.load_progress import on_executors
from pgtrickle.telemetry import BULK_LOAD, BULK_REFUSED, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.define.compile import Compiled
    from pgtrickle.pipeline.engine.spark import SparkEngine

log = logging.getLogger(__name__)

# Warm executors stage 115 MB in half of the driver's 9 s. The first load of a Spark server also starts Python workers
# and generates code, about 7 s more: at this size even that is not slower. 6 MB took 0.5 s instead of 0.35.
BULK_BYTES = 128 << 20
# Each part has a reading and a writing session: 16 of a server's usual 100.
MAX_PARTS = 8


def stage_by_executors(
    reader: Connection,
    writer: Connection,
    engine: SparkEngine,
    table: StreamTable,
    compiled: Compiled,
    *,
    at_least_bytes: int,
) -> str | None:
    """The staging table with the content at the reader's snapshot; None if the driver has to load it.

    Only for tables of rows: the server that stores groups computes their state.
    """
    relids = [s.relid for s in table.sources]
    sizes = reader.execute(statement("load_sources"), {"relids": relids}).fetchall()
    size = sum(row[2] for row in sizes)
    if not sizes or size < at_least_bytes:
        return None
    schema, name, _, pages, is_plain = sizes[0]
    aggregates: frozenset[str] | None = None
    if is_plain and compiled.template is not None:
        aggregates = frozenset(row[0] for row in reader.execute(statement("load_aggregates")).fetchall())

    def cut(parts: int) -> Sequence[str]:
        if aggregates is None:
            return [compiled.load_sql]
        return split(compiled.load_sql, schema, name, pages, parts, aggregates)

    with reader.transaction():
        # Planning locks every table of the statement until the transaction ends: no session can move rows to other
        # pages, or rewrite a table, between the reads of two parts.
        row = reader.execute(f"EXPLAIN (FORMAT JSON) {compiled.load_sql}").fetchone()
        assert row is not None
        top = row[0][0]["Plan"]
    # One part with a small result, usually a query with groups in mode FULL: executors took 280 ms for the five rows of
    # TPC-H 5, the driver 90.
    is_small = top["Plan Rows"] * top["Plan Width"] < at_least_bytes
    if is_small and len(cut(MAX_PARTS)) == 1:  # without a round trip to Spark: 150 of 400 ms of TPC-H 11 at scale 1
        return None
    statements = cut(min(engine.parallelism(), MAX_PARTS))
    if is_small and len(statements) == 1:
        return None
    source, target = hand_over(reader), hand_over(writer, snapshot=False)
    stage = claim_stage(writer, table.pgt_id)
    log.info(
        "Loading by executors",
        extra=event(BULK_LOAD, table=table.full_name, parts=len(statements), source_bytes=size),
    )
    try:
        with on_executors(writer, table, stage, lambda: (top["Plan Rows"], top["Plan Width"])):
            engine.stage_by_executors(source, target, statements, LOAD_COLUMNS, stage)
    except ExecutorsUnableError as error:
        log.warning(
            "Executors cannot load; the driver does",
            extra=event(BULK_REFUSED, table=table.full_name, detail=error.one_line()),
        )
        return None
    return analysed(writer, stage)
