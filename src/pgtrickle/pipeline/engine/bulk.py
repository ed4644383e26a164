"""Bulk loads: executors read parts of a load at one snapshot and write them by COPY.

Spark may run a task twice. Each attempt writes a table of its own in one transaction. Spark returns the tables of the
attempts that count, and `commit` makes exactly those the children of the staging table: reading it reads each part
once. Tables of other attempts are dropped with those of ended processes (apply/stage.py).

Unlike elsewhere Spark is imported at the top; no module imports this one before a bulk load. Executors import it by
name: they need this package, and nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pgtrickle.db.binary_copy import write_binary
from pgtrickle.db.connect import translated
from pgtrickle.db.copy import read_batches
from pgtrickle.db.handover import Handover, take_over
from pgtrickle.pipeline.engine.executor_tasks import read_statements, write_partitions
from pgtrickle.pipeline.executor_errors import reporting

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle.db.connect import Connection

# Small enough that reading and writing overlap; the driver, which alternates, uses 32 MiB.
BATCH_BYTES = 4 << 20
_SPARK_TYPES = {"int8": "bigint", "text": "string"}
_ARROW_TYPES = {"bool": "bool_", "int2": "int16", "int4": "int32", "int8": "int64"}
_ARROW_TYPES |= {"float4": "float32", "float8": "float64", "text": "string"}
_ARROW_TYPES |= {"date": "int32", "timestamp": "int64", "timestamptz": "int64"}


@dataclass(frozen=True, slots=True)
class BulkLoad:
    """A load: the statements of its parts, and the staging table.

    `columns`: (name, int8 or text) of what the statements return.
    """

    source: Handover  # where the statements are run
    target: Handover  # where the staging table is: for a mirror, in another database
    statements: Sequence[str]
    columns: Sequence[tuple[str, str]]
    stage: str


def run(spark: SparkSession, load: BulkLoad) -> None:
    """Raises Spark's exceptions."""
    types = [type_ for _, type_ in load.columns]
    ddl = ", ".join(f"c{i} {_SPARK_TYPES[type_]}" for i, type_ in enumerate(types))
    rows = read_statements(spark, load.statements, Reader(load.source, types), ddl)
    write(rows, load.target, load.columns, load.stage)


def write(rows: DataFrame, target: Handover, columns: Sequence[tuple[str, str]], stage: str) -> None:
    """Executors write the rows to a staging table with these columns (name, type). Raises Spark's exceptions."""
    writer = Writer(target, stage, columns)
    writer.commit(write_partitions(rows, writer))


def write_rows(
    rows: Sequence[Sequence[object]], target: Handover, columns: Sequence[tuple[str, str]], stage: str
) -> None:
    """The same for rows of this process, without executors."""
    import pyarrow as pa

    names, types = [name for name, _ in columns], [_ARROW_TYPES[type_] for _, type_ in columns]
    arrays = [pa.array([row[i] for row in rows], getattr(pa, type_)()) for i, type_ in enumerate(types)]
    writer = Writer(target, stage, columns)
    table = pa.Table.from_arrays(arrays, names=names)
    writer.commit([writer(iter(table.to_batches()))])


def parallelism(spark: SparkSession) -> int:
    """The number of concurrent tasks: the default number of partitions of a range."""
    rows = spark.range(4096).select(f.spark_partition_id().alias("p")).distinct().count()
    return max(int(rows), 1)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads a part of a load; runs in executors."""

    session: Handover
    types: Sequence[str]

    def __call__(self, sql: str) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        arrow = {"int8": pa.int64(), "text": pa.string()}
        with reporting(unable=True):
            conn = take_over(self.session, role="load", in_snapshot=True)
        with conn, reporting(), translated():
            names = [f"c{i}" for i in range(len(self.types))]
            types = [arrow[t] for t in self.types]
            for table in read_batches(conn, sql, types, batch_bytes=BATCH_BYTES):
                yield from table.rename_columns(names).to_batches()


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes one table per call, in executors; `commit` makes a staging table of them, here."""

    session: Handover
    stage: str
    columns: Sequence[tuple[str, str]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> str:
        """Returns the name of the table."""
        table = f"{self.stage}_{secrets.token_hex(6)}"
        with self._connected() as conn, reporting(), translated():
            conn.execute(_create(table, self.columns))
            write_binary(conn, table, [type_ for _, type_ in self.columns], batches)
            conn.commit()
        return table

    def commit(self, tables: Sequence[str]) -> None:
        with self._connected() as conn, translated():
            conn.execute(_create(self.stage, self.columns))
            for table in tables:
                conn.execute(f"ALTER TABLE {table} INHERIT {self.stage}")
            conn.commit()

    def _connected(self) -> Connection:
        with reporting(unable=True):
            # load_progress() finds the rows that it copies by the name of its session.
            return take_over(self.session, role=f"stage#{self.stage.rpartition('_')[2]}", in_snapshot=False)


def _create(table: str, columns: Sequence[tuple[str, str]]) -> str:
    """Unlogged: a crash of the server ends the load anyway."""
    defined = ", ".join(f'"{name}" {type_}' for name, type_ in columns)
    return f"CREATE UNLOGGED TABLE {table} ({defined})"
