"""Builds a replica: executors read the table under one snapshot and write it in the order of its key."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.capture.fingerprint import fingerprints_for_others
from pgtrickle.db import catalog, statement, translated
from pgtrickle.db.connect import begin
from pgtrickle.db.handover import hand_over
from pgtrickle.errors import DefinitionError, LostRaceError, SourceChangedError, UnfitValueError
from pgtrickle.pipeline.engine.split import split
from pgtrickle.replica import log, rows
from pgtrickle.replica.columns import Layout, layout
from pgtrickle.replica.values import Computed, ReplicaId, ReplicaVersion
from pgtrickle.replica.window import rendered_alike

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.pipeline.engine.columnar import Shape
    from pgtrickle.pipeline.engine.spark import SparkEngine
    from pgtrickle.replica.storage import Storage

ROWS_PER_FILE = 100_000  # the rows that an advance rewrites for one deleted row
MAX_PARTS = 8  # sessions that read in parallel


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The content of a replica, and its readers."""

    relid: int
    attnums: frozenset[int]
    computed: tuple[Computed, ...]
    as_text: frozenset[str]
    reader: int | None
    requested: bool


def shape_of(columns: Layout | ReplicaVersion) -> Shape:
    from pgtrickle.pipeline.engine.columnar import Shape, StoredAs

    return Shape(tuple(StoredAs(c.name, c.physical, c.ddl) for c in columns.columns), columns.key)


def build(
    conn: Connection, writer: Connection, engine: SparkEngine, storage: Storage, plan: BuildPlan
) -> ReplicaVersion:
    """`conn` is idle; `writer` holds the lock of `rows.changing`. A column with a value that does not fit its columnar
    type is stored as text."""
    as_text = set(plan.as_text)
    while True:
        try:
            return _build(conn, writer, engine, storage, plan, as_text)
        except UnfitValueError as error:
            if error.column in as_text:
                raise
            as_text.add(error.column)


def _build(
    conn: Connection,
    writer: Connection,
    engine: SparkEngine,
    storage: Storage,
    plan: BuildPlan,
    as_text: Collection[str],
) -> ReplicaVersion:
    with translated():
        id_ = ReplicaId(catalog.read_moment(conn).instance, plan.relid)
    generation, token = secrets.token_hex(8), secrets.token_hex(16)
    location = storage.location(id_)
    directory = f"{location}/{generation}"
    storage.create(directory)
    try:
        rows.register(
            conn,
            plan.relid,
            generation=generation,
            location=location,
            token=token,
            attnums=plan.attnums,
            computed=plan.computed,
            as_text=as_text,
            reader=plan.reader,
            requested=plan.requested,
        )
        with translated():
            begin(conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            version = _load(conn, writer, engine, storage, plan, as_text, id_, directory, token)
            log.create(storage, version)
            storage.close_off(directory)
            if not rows.record(writer, version):
                raise LostRaceError("another process has built the replica")
        finally:
            conn.rollback()
    except BaseException:
        storage.discard(directory)
        raise
    return version


def _load(
    conn: Connection,
    writer: Connection,
    engine: SparkEngine,
    storage: Storage,
    plan: BuildPlan,
    as_text: Collection[str],
    id_: ReplicaId,
    directory: str,
    token: str,
) -> ReplicaVersion:
    """Reads and writes all rows, in the transaction of `conn`, whose snapshot becomes the cut."""
    from pgtrickle.pipeline.engine import columnar

    with translated(), rendered_alike(conn):
        moment = catalog.read_moment(conn)
        fingerprint = fingerprints_for_others(conn, [plan.relid]).get(plan.relid)
        relations = catalog.relations(conn, [plan.relid])
        if fingerprint is None or not relations:
            raise SourceChangedError(f"table {plan.relid} does not exist")
        chosen = layout(conn, relations[0], plan.attnums, plan.computed, as_text)  # locks the table against changes
        if fingerprints_for_others(writer, [plan.relid]).get(plan.relid) != fingerprint:
            raise LostRaceError("the table was altered while its replica was being built")
        if not chosen.columns:
            raise DefinitionError("a table without columns has no replica")
        statements = parts_of(conn, engine, chosen)
        read, shape = columnar.TableRead(hand_over(conn), statements), shape_of(chosen)
        leading = next((c for c in chosen.columns if c.name in chosen.key), None)
        with engine.bulk_session() as spark:
            published = storage.write_sorted(
                columnar.table(spark, read, shape),
                shape,
                directory,
                storage.staging(directory),
                leading,
                parts=None,
                rows_per_file=ROWS_PER_FILE,
            )
    return ReplicaVersion(
        id_,
        directory,
        directory.rpartition("/")[2],
        0,
        token,
        moment.cut,
        fingerprint,
        chosen.columns,
        chosen.key,
        tuple(published),
        moment.cut,
    )


def parts_of(conn: Connection, engine: SparkEngine, chosen: Layout) -> Sequence[str]:
    """Statements that together return the table, for executors."""
    text = chosen.from_table()
    sizes = conn.execute(statement("load_sources"), {"relids": [chosen.relation.relid]}).fetchall()
    if not sizes or not sizes[0][4]:
        return [text]
    schema, name, _, pages, _ = sizes[0]
    aggregates = frozenset(row[0] for row in conn.execute(statement("load_aggregates")).fetchall())
    return split(text, schema, name, pages, min(engine.parallelism(), MAX_PARTS), aggregates)
