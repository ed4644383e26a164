"""The bulk path: executors read parts of a load under one snapshot, Spark identifies, executors write by COPY.

Spark may run a task twice. Each attempt writes a table of its own in one transaction, and `commit`, which Spark calls
with the attempts that count, makes exactly those the children of the staging table: reading it reads each part once.
What other attempts have left behind is swept like the rest (apply/stage.py).

Unlike elsewhere Spark is imported at the top, for its base classes; so nobody imports this module before a bulk load.
Executors import it by name: they need this package, and nothing else.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from pgtrickle.db.connect import translated
from pgtrickle.db.copy import read_batches, write_batches
from pgtrickle.db.handover import Handover, take_over
from pgtrickle.pipeline.executor_errors import reporting

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import SparkSession

    from pgtrickle.db.connect import Connection

NAME = "pgtrickle_bulk"
# Spark redacts options whose name says "secret" wherever it shows them.
SESSION, STATEMENTS, COLUMNS, STAGE = "secret_session", "statements", "columns", "stage"
# Small enough that reading, identifying and writing overlap; on the driver's way they take turns, with 32 MiB.
BATCH_BYTES = 4 << 20
_SPARK_TYPES = {"int8": "bigint", "text": "string"}


@dataclass(frozen=True, slots=True)
class BulkLoad:
    """A load: the statements of its parts, and the staging table that is to be made of them.

    `columns`: (name, int8 or text) of what the statements return, the identity last, which they do not return.
    """

    source: Handover  # where the statements are run
    target: Handover  # where the staging table is: for a mirror, in another database
    statements: Sequence[str]
    columns: Sequence[tuple[str, str]]
    stage: str


def run(spark: SparkSession, load: BulkLoad, identity: SparkColumn) -> None:
    """Raises what Spark raises."""
    spark.dataSource.register(BulkSource)
    source, target = load.source.to_json(), load.target.to_json()
    columns = json.dumps(load.columns)
    rows = spark.read.format(NAME).options(
        **{SESSION: source, COLUMNS: columns, STATEMENTS: json.dumps(load.statements)}
    )
    identified = rows.load().select("*", identity.alias("h"))
    writer = identified.write.format(NAME).mode("append")
    writer.options(**{SESSION: target, COLUMNS: columns, STAGE: load.stage}).save()


def parallelism(spark: SparkSession) -> int:
    """Tasks that Spark would run at once: the parts into which it cuts a range that nobody has cut."""
    rows = spark.range(4096).select(f.spark_partition_id().alias("p")).distinct().count()
    return max(int(rows), 1)


class BulkSource(DataSource):  # type: ignore[misc]  # Spark's classes are not followed by the type checker
    """Reads the parts of a load, or writes a staging table, as the options say."""

    options: Mapping[str, str]

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        *columns, _identity = json.loads(self.options[COLUMNS])
        return ", ".join(f"c{i} {_SPARK_TYPES[type_]}" for i, (_, type_) in enumerate(columns))

    def reader(self, schema: object) -> PartReader:  # noqa: ARG002 - Spark's signature
        *columns, _identity = json.loads(self.options[COLUMNS])
        return PartReader(
            Handover.from_json(self.options[SESSION]), json.loads(self.options[STATEMENTS]), [t for _, t in columns]
        )

    def writer(self, schema: object, overwrite: bool) -> Writer:  # noqa: ARG002 - Spark's signature
        return Writer(Handover.from_json(self.options[SESSION]), self.options[STAGE], json.loads(self.options[COLUMNS]))


class PartReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, session: Handover, statements: Sequence[str], types: Sequence[str]) -> None:
        self.session = session
        self.statements = statements
        self.types = types

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(sql) for sql in self.statements]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        arrow = {"int8": pa.int64(), "text": pa.string()}
        with reporting(unable=True):
            conn = take_over(self.session, role="load", in_snapshot=True)
        with conn, reporting(), translated():
            types = [arrow[t] for t in self.types]
            for table in read_batches(conn, partition.value, types, batch_bytes=BATCH_BYTES):
                yield from table.to_batches()


@dataclass(frozen=True)
class Attempt(WriterCommitMessage):  # type: ignore[misc]
    """The table that a task has written."""

    table: str


class Writer(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, session: Handover, stage: str, columns: Sequence[tuple[str, str]]) -> None:
        self.session = session
        self.stage = stage
        self.columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Attempt:
        table = f"{self.stage}_{secrets.token_hex(6)}"
        with self._connected() as conn, reporting(), translated():
            conn.execute(_create(table, self.columns))
            write_batches(conn, table, iterator)
            conn.commit()
        return Attempt(table)

    def commit(self, messages: Sequence[Attempt | None]) -> None:
        with self._connected() as conn, reporting(), translated():
            conn.execute(_create(self.stage, self.columns))
            for message in messages:
                if message is not None:
                    conn.execute(f"ALTER TABLE {message.table} INHERIT {self.stage}")
            conn.commit()

    def abort(self, messages: Sequence[Attempt | None]) -> None:
        with self._connected() as conn, reporting(), translated():
            for message in messages:
                if message is not None:
                    conn.execute(f"DROP TABLE IF EXISTS {message.table}")
            conn.commit()

    def _connected(self) -> Connection:
        with reporting(unable=True):
            return take_over(self.session, role="stage", in_snapshot=False)


def _create(table: str, columns: Sequence[tuple[str, str]]) -> str:
    """Unlogged: a crash of the server ends the load anyway."""
    defined = ", ".join(f'"{name}" {type_}' for name, type_ in columns)
    return f"CREATE UNLOGGED TABLE {table} ({defined})"
