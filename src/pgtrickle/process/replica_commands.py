"""`pgtrickle replica`: replicas of one database, in this process, with its own Spark server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle.db.connect import connect, translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import DefinitionError, PgtrickleError
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.replica import ReplicaNeed, ReplicaStore
from pgtrickle.replica.drop import drop
from pgtrickle.replica.roots import root_of
from pgtrickle.servers.spark_address import SparkUrlWaiter
from pgtrickle.servers.spark_keeper import SparkSupervisor
from pgtrickle.settings import Settings

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

LISTED = (
    "source_table",
    "state",
    "row_count",
    "bytes",
    "files",
    "pending_rows",
    "committed_at",
    "readers",
    "requested",
    "last_error",
    "location",
)


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """The result for the replica of a table; `missing` and `extra`: rows that only the table or the replica has."""

    source: str
    rows: int = 0
    bytes: int = 0
    missing: int = 0
    extra: int = 0
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and not self.missing and not self.extra


def list_replicas(dsn: str) -> list[dict[str, Any]]:
    with _session(dsn) as conn, translated():
        rows = conn.execute(f"SELECT {', '.join(LISTED)} FROM pgtrickle.replicas()").fetchall()
    return [dict(zip(LISTED, row, strict=True)) for row in rows]


def create_replica(settings: Settings, dsn: str, table: str, columns: Sequence[str]) -> ReplicaReport:
    """Creates a replica of all columns, or of these and the key. It stays until it is dropped."""
    with _session(dsn) as conn:
        relid, name = _table(conn, table)
        need = ReplicaNeed(relid, _attnums(conn, relid, name, columns) if columns else None)
        with _store(settings) as store:
            version = store.ensure(conn, need, requested=True)
    return ReplicaReport(name, version.rows, version.bytes)


def drop_replica(settings: Settings, dsn: str, table: str) -> bool:
    """Needs no Spark. False: there was none."""
    with _session(dsn) as conn:
        relid, _ = _table(conn, table)
        return drop(conn, root_of(settings.replica_root, os.environ), relid)


def verify_replicas(settings: Settings, dsn: str, table: str | None) -> list[ReplicaReport]:
    """Compares the rows of one replica, or of all, with their tables in both directions, each at one snapshot."""
    reports = []
    with _session(dsn) as conn:
        names = [row["source_table"] for row in list_replicas(dsn)] if table is None else [table]
        if not names:
            return []
        with _store(settings) as store:
            for table_name in names:
                relid, name = _table(conn, table_name)
                try:
                    comparison = store.verify(conn, relid)
                except PgtrickleError as error:
                    reports.append(ReplicaReport(name, error=error.one_line()))
                    continue
                reports.append(ReplicaReport(name, comparison.rows, 0, comparison.missing, comparison.extra))
    return reports


@contextmanager
def _session(dsn: str) -> Iterator[Connection]:
    conn = connect(dsn, role="replica", autocommit=True)
    try:
        yield conn
    finally:
        conn.close()


@contextmanager
def spark_engine(settings: Settings) -> Iterator[SparkEngine]:
    """An engine on a Spark server that is started for it, unless `spark_remote` names one."""
    spark = SparkSupervisor(settings)
    spark.start()
    try:
        seconds = settings.spark_start_timeout_s
        engine = SparkEngine(SparkUrlWaiter(spark.address, seconds, seconds, threading.Event()))
        try:
            yield engine
        finally:
            engine.close()
    finally:
        spark.stop()


@contextmanager
def _store(settings: Settings) -> Iterator[ReplicaStore]:
    with spark_engine(settings) as engine:
        yield ReplicaStore(root_of(settings.replica_root, os.environ), engine)


def _table(conn: Connection, name: str) -> tuple[int, str]:
    """The oid of a table and its name with schema. A name without schema means a table in schema public."""
    with translated(), conn.transaction():
        conn.execute("SELECT pg_catalog.set_config('search_path', 'public', true)")
        row = conn.execute(statement("table_by_name"), {"name": name}).fetchone()
    if row is None:
        raise DefinitionError(f"there is no table {name}", hint="name it with its schema unless it is in public")
    return int(row[0]), str(row[1])


def _attnums(conn: Connection, relid: int, table: str, columns: Sequence[str]) -> frozenset[int]:
    with translated():
        known: dict[str, int] = dict(conn.execute(statement("column_numbers"), {"relid": relid}).fetchall())
    if missing := [c for c in columns if c not in known]:
        raise DefinitionError(f"{table} has no column {missing[0]}")
    return frozenset(known[c] for c in columns)
