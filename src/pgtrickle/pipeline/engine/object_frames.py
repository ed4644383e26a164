"""DataFrames over files in an object store, and files of DataFrames.

Spark's own Parquet scan needs a Hadoop file system for the store's scheme, with credentials of its own. Where the
session can read a file that way, it does. Elsewhere executors read the files by Arrow: one task for each, only the
columns that are needed. Executors always write by Arrow, each file once under its final name: an object store has no
cheap rename, and a file that no commit names does not count.

Executors import this module by name.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from pgtrickle.errors import ReplicaUnavailableError
from pgtrickle.pipeline.engine.columnar import FILE, Shape, arrow_type, in_order
from pgtrickle.pipeline.engine.executor_tasks import read_statements, write_partitions
from pgtrickle.pipeline.engine.object_files import ObjectFiles, digest, parquet_bytes, paths_below
from pgtrickle.pipeline.executor_errors import reporting

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Columns = Sequence[tuple[str, str]]  # name in the file and type in Spark's DDL
BATCH_ROWS = 65_536


def reads_itself(spark: SparkSession, url: str) -> bool:
    """Whether Spark has a Hadoop file system that reads this existing file."""
    try:
        spark.read.parquet(url).schema  # noqa: B018 - asks the server, which reads the footer
    except PySparkException:
        return False
    return True


def arrow_frame(
    spark: SparkSession, files: ObjectFiles, urls: Sequence[str], columns: Columns, *, with_file: bool
) -> DataFrame:
    """The rows of files, which executors read by Arrow. `with_file`: with the name of the file in column FILE."""
    ddl = ", ".join(f"`{name}` {type_}" for name, type_ in columns) + (f", `{FILE}` string" if with_file else "")
    reader = _Reader(files, tuple(columns), with_file)
    return read_statements(spark, paths_below(files.root, urls), reader, ddl)


def write_sorted(
    frame: DataFrame,
    shape: Shape,
    files: ObjectFiles,
    directory: str,
    leading: str | None,
    *,
    parts: int | None,
    rows_per_file: int,
) -> list[dict[str, Any]]:
    """Writes files in the order of the key, like `columnar.write_sorted`, each named after a hash of its content.

    `leading`: the column whose bounds are returned. Returns name, bytes, rows, low and high of each file.
    """
    columns = tuple((c.physical, c.ddl) for c in shape.columns)
    writer = _Writer(files, directory, "part", columns, leading, rows_per_file)
    written = write_partitions(in_order(frame, shape, parts), writer)
    return [each for part in written for each in json.loads(part)]


def write_one(frame: DataFrame, columns: Columns, files: ObjectFiles, directory: str) -> str:
    """Writes one file and returns its path."""
    writer = _Writer(files, directory, "one", tuple(columns), None, None)
    written = write_partitions(frame.select(*(f.col(name) for name, _ in columns)).coalesce(1), writer)
    if not written:
        return f"{directory}/{writer.empty()}"
    (only,) = json.loads(written[0])
    return f"{directory}/{only['name']}"


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one file; runs in executors."""

    files: ObjectFiles
    columns: tuple[tuple[str, str], ...]
    with_file: bool

    def __call__(self, path: str) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyarrow import parquet

        schema = _schema(self.columns)
        with reporting(), _readable(self.files, path), parquet.ParquetFile(self.files.open(path)) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=schema.names):
                table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                if self.with_file:
                    name = pa.array([path.rpartition("/")[2]] * len(table), pa.string())
                    table = table.append_column(FILE, name)
                yield from table.to_batches()


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the rows of a partition to files; runs in executors. A task that runs twice writes other files, and those
    of the attempt that does not count are deleted later."""

    files: ObjectFiles
    directory: str
    prefix: str
    columns: tuple[tuple[str, str], ...]
    leading: str | None
    rows_per_file: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> str:
        written: list[dict[str, Any]] = []
        pending: list[pa.RecordBatch] = []
        rows = 0
        with reporting():
            for batch in batches:
                while self.rows_per_file is not None and rows + batch.num_rows >= self.rows_per_file:
                    fitting = self.rows_per_file - rows
                    written.append(self._write([*pending, batch.slice(0, fitting)], len(written)))
                    batch, pending, rows = batch.slice(fitting), [], 0
                if batch.num_rows:
                    pending.append(batch)
                    rows += batch.num_rows
            if pending:
                written.append(self._write(pending, len(written)))
        return json.dumps(written)

    def empty(self) -> str:
        return str(self._write([], 0)["name"])

    def _write(self, batches: Sequence[pa.RecordBatch], number: int) -> dict[str, Any]:
        import pyarrow as pa

        schema = _schema(self.columns)
        tables = [pa.Table.from_batches([b]).rename_columns(schema.names).cast(schema) for b in batches]
        table = pa.concat_tables([schema.empty_table(), *tables])
        content = parquet_bytes(table, "zstd")
        name = f"{self.prefix}-{secrets.token_hex(6)}-{number:05d}-{digest(content)}.parquet"
        self.files.write(f"{self.directory}/{name}", content)
        low, high = self._bounds(table)
        return {"name": name, "bytes": len(content), "rows": len(table), "low": low, "high": high}

    def _bounds(self, table: pa.Table) -> tuple[Any, Any]:
        from pyarrow import compute

        if self.leading is None or not len(table):
            return None, None
        bounds = compute.min_max(table.column(self.leading)).as_py()
        return bounds["min"], bounds["max"]


@contextmanager
def _readable(files: ObjectFiles, path: str) -> Iterator[None]:
    """Raises our error, whatever the reason: the next use of the replica finds out whether it is damaged."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise ReplicaUnavailableError(f"file {path} cannot be read: {files.clean(error)}") from None


def _schema(columns: Columns) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, arrow_type(ddl)) for name, ddl in columns])
