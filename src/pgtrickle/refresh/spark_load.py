"""Loads on Spark: executors evaluate the query over replicas at the cut and write the result to a staging table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pgtrickle.apply.stage import analysed, claim_stage
from pgtrickle.db.connect import translated
from pgtrickle.db.handover import hand_over
from pgtrickle.db.session import applied
from pgtrickle.db.statements import statement
from pgtrickle.errors import InexactValueError, PgtrickleError, ReplicaUnavailableError
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.pipeline.expressions import failure
from pgtrickle.refresh.decide import DIFFERENTIAL
from pgtrickle.refresh.load_progress import expected, is_announced, on_executors
from pgtrickle.refresh.loads import StagedLoad, discard, staged_content
from pgtrickle.refresh.spark_query import Place, SparkInput, SparkQuery, all_at, spark_query
from pgtrickle.refresh.stages import PlannedRefresh, timed

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.define.compile import Compiled
    from pgtrickle.model.catalog import StreamTable
    from pgtrickle.pipeline.engine.spark import SparkEngine
    from pgtrickle.replica import ReplicaNeed, ReplicaStore, ReplicaVersion

SMALL_BYTES = 2 << 20  # size of a table up to which the driver collects the content and writes it


def spark_obstacle(
    conn: Connection, store: ReplicaStore, table: StreamTable, compiled: Compiled, kind: str
) -> Reason | None:
    """Why Spark cannot run this kind of refresh now: the query, its delta or a replica. Compiles the query once."""
    query = compiled.on_spark.get(lambda: spark_query(conn, table, compiled))
    if isinstance(query, Reason):
        return query
    if kind == DIFFERENTIAL and isinstance(query.changes, Reason):
        return query.changes
    return missing_replica(all_at(conn), store, query)


def missing_replica(place: Place, store: ReplicaStore, query: SparkQuery) -> Reason | None:
    """The first table without a usable replica."""
    for (schema, name), each in query.inputs.items():
        conn, source = place(each)
        try:
            store.open(conn, source.need)
        except ReplicaUnavailableError:
            return Reason.of(ReasonCode.ENGINE_NO_REPLICA, source=f"{schema}.{name}")
    return None


def needed_together(conn: Connection, need: ReplicaNeed, setting: str) -> ReplicaNeed:
    """Adds the columns that other stream tables with engine spark use: the source is read once for all of them.
    `setting`: the engine of tables without the option."""
    assert need.attnums is not None
    with translated():
        ((used,),) = conn.execute(statement("replica_columns"), {"relid": need.relid, "setting": setting}).fetchall()
    return replace(need, attnums=need.attnums | frozenset(used))


@contextmanager
def staged_on_spark(
    reader: Connection,
    writer: Connection,
    engine: SparkEngine,
    store: ReplicaStore,
    planned: PlannedRefresh,
    query: SparkQuery,
    place: Place,
) -> Iterator[StagedLoad]:
    """The content, evaluated on Spark. The staging table is dropped if the block fails."""
    staged = stage_on_spark(reader, writer, engine, store, planned, query, place)
    try:
        yield staged
    except BaseException:
        assert staged.stage is not None
        discard(writer, staged.stage)
        raise


def stage_on_spark(
    reader: Connection,
    writer: Connection,
    engine: SparkEngine,
    store: ReplicaStore,
    planned: PlannedRefresh,
    query: SparkQuery,
    place: Place,
) -> StagedLoad:
    """The content at the reader's snapshot, and at those of `place` in other databases. The source servers read the
    changes since the replicas' cuts, and one writes the result; they evaluate nothing.

    Raises ReplicaUnavailableError if a replica cannot be used, and InexactValueError if Spark cannot represent a value.
    """
    from pgtrickle.pipeline.engine import evaluate

    planned.timings.is_cold |= not engine.is_warm(bulk=True)
    with timed(planned, "open"):
        inputs = opened_inputs(store, query, place)
    stage = claim_stage(reader, planned.table.pgt_id)
    target = hand_over(writer, snapshot=False)
    announced = (lambda: _expected(writer, planned)) if is_announced(planned) else None
    with (
        spark_failures(),
        on_executors(writer, planned.table, stage, announced),
        engine.bulk_session() as spark,
        ExitStack() as stack,
    ):
        with timed(planned, "window"):
            frames = {
                name: evaluate.named(
                    stack.enter_context(store.at_cut(spark, each.conn, each.version, each.source.names)),
                    each.source.names,
                )
                for name, each in inputs.items()
            }
        with timed(planned, "evaluate"):
            filled = evaluate.Stage(target, stage, query.staged)
            few = _expects_few(reader, planned, query)
            evaluate.fill(spark, query.query.build, lambda schema, name: frames[schema, name], filled, expects_few=few)
    return StagedLoad(staged_content(planned, query.content(analysed(writer, stage))), stage)


def _expected(writer: Connection, planned: PlannedRefresh) -> tuple[int, int]:
    """Rows and their width, as PostgreSQL's planner estimates them; zeros if it refuses to plan the query."""
    query = planned.compiled.stages.load.query
    if query is None:
        return 0, 0
    try:
        with translated(), writer.transaction(), applied(writer, planned.settings):
            return expected(writer, query.sql)
    except PgtrickleError:
        return 0, 0


def _expects_few(reader: Connection, planned: PlannedRefresh, query: SparkQuery) -> bool:
    """Whether the query limits its rows, or the stored result is small."""
    from pgtrickle.pipeline.engine.evaluate import FEW_ROWS

    most = query.query.most_rows
    if most is not None:
        return most <= FEW_ROWS
    if not planned.table.is_populated:
        return False
    with translated():
        row = reader.execute(statement("stored_bytes"), {"relid": planned.table.relid}).fetchone()
    return row is not None and row[0] is not None and row[0] <= SMALL_BYTES


@dataclass(frozen=True, slots=True)
class OpenedInput:
    """The replica of an input, and the session whose snapshot it is read at."""

    conn: Connection
    source: SparkInput
    version: ReplicaVersion


def opened_inputs(store: ReplicaStore, query: SparkQuery, place: Place) -> dict[tuple[str, str], OpenedInput]:
    by_name: dict[tuple[str, str], OpenedInput] = {}
    for name, each in query.inputs.items():
        conn, source = place(each)
        by_name[name] = OpenedInput(conn, source, opened(conn, store, source))
    return by_name


def opened(reader: Connection, store: ReplicaStore, source: SparkInput) -> ReplicaVersion:
    version = store.open(reader, source.need)
    stored = {c.name: c.ddl for c in version.columns}
    for column, name in source.names.items():
        if stored[column] != source.types[column]:  # it contained a value that its columnar type cannot represent
            raise InexactValueError(f"column {name} has values without an exact columnar representation")
    return version


@contextmanager
def spark_failures() -> Iterator[None]:
    """Translates an error that an expression raised in a Spark job."""
    try:
        yield
    except PgtrickleError as error:
        ours = failure(str(error))
        if ours is None:
            raise
        raise ours from error
