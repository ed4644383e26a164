"""Loads: the whole content of a stream table is computed at the snapshot, staged, and replaces the stored content.

The server computes it by one statement into a staging table, typed, with the identity of each row. The driver transfers
rows only if another session has to read them: for the query of an untrusted author, and for a mirror.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.apply import bags, groups, topk
from pgtrickle.apply.stage import STAGE, claim_stage, create_stage, drop_stage, stage_arrow
from pgtrickle.apply.target import reshape
from pgtrickle.db.connect import at_snapshot, translated
from pgtrickle.db.copy import read_batches
from pgtrickle.db.handover import LOCK_TIMEOUT_MS
from pgtrickle.db.session import applied
from pgtrickle.define.author_query import read_load
from pgtrickle.errors import PgtrickleError
from pgtrickle.model.session import without_formats
from pgtrickle.refresh.bulk_load import stage_by_executors
from pgtrickle.refresh.load_progress import COMPUTE, WRITE, announce, counted, expected, is_announced
from pgtrickle.refresh.stages import PlannedRefresh, require_stored, timed
from pgtrickle.telemetry import STAGE_LEFT, event

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection
    from pgtrickle.pipeline.engine.spark import SparkEngine


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StagedLoad:
    """The content to write: a relation with the columns of the load query (pipeline/templates/load_query.py; rows also
    have their identity h), and the staging table that it reads, which is dropped after the apply."""

    content: str
    stage: str | None = None


def is_computed_inside(planned: PlannedRefresh) -> bool:
    """Whether a session of the target database can compute the content: typed, and with our privileges."""
    return planned.is_load and planned.place is None and planned.compiled.stages.load.query is not None


def stage_inside(writer: Connection, planned: PlannedRefresh, stage: str) -> StagedLoad:
    """The content, computed by the server at the snapshot of this session, in a staging table.

    An engine that computes the `LoadQuery` elsewhere fills a staging table with the same columns, without the identity,
    and gives `StagedLoad(bags.identified(target, stage), stage)` to `write_load`; of groups `StagedLoad(stage, stage)`.
    """
    query = f"SELECT q.* FROM {whole_content(planned).content} AS q"
    announce(writer, planned, COMPUTE, query)
    create_stage(writer, stage, query)
    return StagedLoad(stage, stage)


def staged_content(planned: PlannedRefresh, relation: str) -> str:
    """The content of a load, from a relation with the columns of the load query: adds the identity of rows."""
    return relation if planned.compiled.groups is not None else bags.identified(planned.compiled.target, relation)


def whole_content(planned: PlannedRefresh) -> StagedLoad:
    """The content without a staging table: the query itself."""
    require_stored(planned)
    query = planned.compiled.stages.load.query
    assert query is not None
    return StagedLoad(staged_content(planned, f"({query.sql})"))


@contextmanager
def at_snapshot_of(reader: Connection, writer: Connection) -> Iterator[None]:
    """A transaction of the writer at the snapshot of the reader; commits at the end."""
    row = reader.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
    assert row is not None
    with at_snapshot(writer, row[0]):
        # DDL that waits for the reader, while the writer waits for the DDL, is a deadlock without detection.
        writer.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
        yield


@contextmanager
def computed_inside(
    reader: Connection, writer: Connection, planned: PlannedRefresh
) -> Iterator[Mapping[int, StagedLoad]]:
    """The content of a table, computed by a transaction of the writer at the reader's snapshot.

    It is committed before the apply: a transaction at that snapshot could not update a catalog row that has changed
    since (by a request for a refresh, for example); and the catalog row must not be locked during a load.
    """
    stage = claim_stage(reader, planned.table.pgt_id)
    with timed(planned, "compute"), at_snapshot_of(reader, writer), applied(writer, planned.settings):
        staged = stage_inside(writer, planned, stage)
    try:
        yield {planned.table.pgt_id: staged}
    except BaseException:
        discard(writer, stage)
        raise


def discard(writer: Connection, stage: str) -> None:
    """Drops the staging table of a load that was not applied; if it cannot be dropped now, tidy drops it later."""
    try:
        with translated(), writer.transaction():
            drop_stage(writer, stage)
    except PgtrickleError as error:
        log.info(
            "A staging table could not be dropped; it is dropped later",
            extra=event(STAGE_LEFT, stage=stage, detail=error.one_line()),
        )


def stage_load(
    reader: Connection, writer: Connection, engine: SparkEngine, planned: PlannedRefresh, bulk_bytes: int
) -> StagedLoad:
    """Stages the content in the transaction of the writer, for `write_load`.

    If another session reads it: by executors if the sources are large, otherwise by this process in batches.
    """
    require_stored(planned)
    pgt_id = planned.table.pgt_id
    if reader is writer and planned.place is None:
        return _staged_by_writer(writer, planned)
    begun, is_cold = time.perf_counter(), not engine.is_warm(bulk=True)
    stage: str | None = None
    if planned.place is None:  # executors would read as us
        stage = stage_by_executors(reader, writer, engine, planned.table, planned.compiled, at_least_bytes=bulk_bytes)
    if stage is not None:
        planned.timings.add("executors", (time.perf_counter() - begun) * 1000)
        planned.timings.is_cold |= is_cold
    elif reader is writer:  # one session cannot run two COPY statements at the same time
        stage = stage_arrow(writer, bags.LOAD_COLUMNS, list(_batches(reader, planned)), pgt_id=pgt_id)
    else:
        # Closed inside the savepoint: an unfinished COPY has to end before the connection is used again.
        with reader.transaction(), closing(_batches(reader, planned)) as batches:
            shown = counted(writer, planned, batches, _expected(reader, planned)) if is_announced(planned) else batches
            stage = stage_arrow(writer, bags.LOAD_COLUMNS, shown, pgt_id=pgt_id)
    return StagedLoad(_typed(planned, stage), stage)


def _staged_by_writer(writer: Connection, planned: PlannedRefresh) -> StagedLoad:
    stage = f"pg_temp.{STAGE}_{planned.table.pgt_id}"
    if is_computed_inside(planned):
        return stage_inside(writer, planned, stage)
    load = planned.compiled.load_sql
    if without_formats(planned.settings) == planned.settings:
        return StagedLoad(_typed(planned, f"({load})"))  # the rows of a cycle's fixpoint
    # It is evaluated with formats of the author, and applied with ours.
    create_stage(writer, stage, f"SELECT l.k FROM ({load}) AS l(k)")
    return StagedLoad(_typed(planned, stage), stage)


def _expected(reader: Connection, planned: PlannedRefresh) -> int:
    """Rows of the load, as the planner estimates; 0: the session of the author reads them."""
    if planned.place is not None:
        return 0
    return expected(reader, planned.compiled.load_sql)[0]


def _typed(planned: PlannedRefresh, texts: str) -> str:
    return bags.identified(planned.compiled.target, planned.compiled.target.decoded_rows(texts))


def write_load(writer: Connection, planned: PlannedRefresh, staged: StagedLoad) -> tuple[int, int]:
    """Writes the difference between the content and the stored rows. Returns rows inserted and deleted."""
    reshape(writer, planned.compiled.target)
    announce(writer, planned, WRITE, f"SELECT n.* FROM {staged.content} AS n")
    if planned.compiled.topk is not None:
        rows = topk.replace_rows(writer, planned.compiled.topk, staged.content)
    elif planned.compiled.groups is not None:
        rows = groups.replace_groups(writer, planned.compiled.groups, staged.content)
    else:
        rows = bags.replace_rows(writer, planned.compiled.target, staged.content)
    if staged.stage is not None:
        drop_stage(writer, staged.stage)
    return rows


def read_refill(reader: Connection, planned: PlannedRefresh) -> list[pa.Table]:
    """The first rows of a LIMIT, at the snapshot of the delta."""
    import pyarrow as pa

    require_stored(planned)
    with closing(read_batches(reader, planned.compiled.load_sql, [pa.string(), pa.int64()])) as batches:
        return list(batches)


def _read(reader: Connection, planned: PlannedRefresh) -> Generator[pa.Table, None, None]:
    import pyarrow as pa

    sql, types = planned.compiled.load_sql, [pa.string()]
    if planned.place is None:
        return read_batches(reader, sql, types)
    return read_load(planned.place, planned.table, sql, planned.compiled.copies, types, planned.compiled.settings)


def _batches(reader: Connection, planned: PlannedRefresh) -> Generator[pa.Table, None, None]:
    with closing(_read(reader, planned)) as batches:
        while True:
            with timed(planned, "read"):
                batch = next(batches, None)
            if batch is None:
                return
            with timed(planned, "stage"):
                yield batch
