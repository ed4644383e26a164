"""Tables as Parquet files: reading a table at one snapshot and writing it; the table at a later cut; rewriting.

A column has a name in DataFrames (`c<attnum>`, unique for any case sensitivity of Spark) and a name in the files, which
users see. Rows are compared exactly: Spark groups and joins -0.0 and 0.0 as equal, so floats are compared as texts.

Spark is imported at module level for its base classes; import this module only to use a replica. Executors import it by
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pgtrickle.db.connect import translated
from pgtrickle.db.copy import read_batches
from pgtrickle.db.handover import Handover, take_over
from pgtrickle.errors import UnfitValueError
from pgtrickle.pipeline.engine.executor_tasks import read_statements
from pgtrickle.pipeline.executor_errors import reporting

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

    from pgtrickle.db.connect import Connection

Frame, Session = DataFrame, SparkSession  # for modules that must not import Spark

BATCH_BYTES = 4 << 20
WEIGHT = "w"  # of a row of a window: 1 inserted, -1 deleted, 0 TRUNCATE
FILE = "file name"  # a column that has the name of a row's file; no column of a file has a space in its name
_FLOATS = ("float", "double")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_UNFIT = re.compile(r"CSV column #(\d+)")


@dataclass(frozen=True, slots=True)
class StoredAs:
    """A column: its name in DataFrames, its name in the files, its type in Spark's DDL."""

    name: str
    physical: str
    ddl: str


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns of a table, and the names of those that identify a row; none: rows are counted by their content."""

    columns: tuple[StoredAs, ...]
    key: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    @property
    def identity(self) -> list[StoredAs]:
        return [c for c in self.columns if c.name in self.key] if self.key else list(self.columns)


@dataclass(frozen=True, slots=True)
class TableRead:
    """Statements that together return the rows of a table, in the order of the shape's columns."""

    session: Handover
    statements: Sequence[str]


def arrow_type(ddl: str) -> pa.DataType:
    import pyarrow as pa

    if (decimal := _DECIMAL.fullmatch(ddl)) is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return {
        "boolean": pa.bool_(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
    }[ddl]


def rows_of(
    conn: Connection, query: str, columns: Sequence[tuple[str, str]], *, batch_bytes: int
) -> Iterator[pa.Table]:
    """Batches of a query's rows; `columns`: (name, DDL). Raises UnfitValueError if a type cannot represent a value."""
    import pyarrow as pa

    names, types = [name for name, _ in columns], [arrow_type(ddl) for _, ddl in columns]
    try:
        for table in read_batches(conn, query, types, batch_bytes=batch_bytes):
            yield table.rename_columns(names)
    except pa.ArrowInvalid as error:
        match = _UNFIT.search(str(error))
        if match is None:
            raise
        raise UnfitValueError(names[int(match[1])]) from None


def table(spark: SparkSession, read: TableRead, shape: Shape) -> DataFrame:
    """The rows of a table at the exported snapshot; each action reads them again."""
    columns = [(c.name, c.ddl) for c in shape.columns]
    ddl = ", ".join(f"{name} {type_}" for name, type_ in columns)
    return read_statements(spark, read.statements, _TableReader(read.session, columns), ddl)


class Scan(Protocol):
    """Reads columns (name in the file, DDL) of Parquet files. `with_file`: with the file's name in column FILE."""

    def __call__(
        self, spark: SparkSession, paths: Sequence[str], columns: Sequence[tuple[str, str]], *, with_file: bool = False
    ) -> DataFrame: ...


def spark_scan(
    spark: SparkSession, paths: Sequence[str], columns: Sequence[tuple[str, str]], *, with_file: bool = False
) -> DataFrame:
    """By Spark itself."""
    rows = spark.read.schema(", ".join(f"`{name}` {ddl}" for name, ddl in columns)).parquet(*paths)
    if with_file:
        return rows.select(*(f.col(f"`{name}`") for name, _ in columns), f.col("_metadata.file_name").alias(FILE))
    return rows


def stored(spark: SparkSession, uris: Sequence[str], shape: Shape, scan: Scan = spark_scan) -> DataFrame:
    """The rows of these files."""
    if not uris:
        return spark.createDataFrame([], ", ".join(f"{c.name} {c.ddl}" for c in shape.columns))
    rows = scan(spark, uris, [(c.physical, c.ddl) for c in shape.columns])
    return rows.select(*(f.col(f"`{c.physical}`").alias(c.name) for c in shape.columns))


def weighted(spark: SparkSession, uris: Sequence[str], shape: Shape, scan: Scan = spark_scan) -> DataFrame:
    """Images with their weights, from files."""
    return scan(spark, uris, weighted_columns(shape))


def weighted_columns(shape: Shape) -> list[tuple[str, str]]:
    return [(WEIGHT, "bigint"), *((c.name, c.ddl) for c in shape.columns)]


def weighted_ddl(shape: Shape) -> str:
    return ", ".join(f"{name} {ddl}" for name, ddl in weighted_columns(shape))


def net(window: DataFrame, shape: Shape) -> DataFrame:
    """The images of a window with their net weights, without those that cancel out."""
    floats = [c for c in shape.columns if c.ddl in _FLOATS]
    groups = [_exact(c).alias(f"g{i}") for i, c in enumerate(shape.columns)]
    values = [f.first(c.name).alias(c.name) for c in floats]
    summed = window.groupBy(*groups).agg(f.sum(WEIGHT).alias(WEIGHT), *values).where(f.col(WEIGHT) != 0)
    shown = [f.col(c.name if c in floats else f"g{i}").alias(c.name) for i, c in enumerate(shape.columns)]
    return summed.select(WEIGHT, *shown)


def minus(left: DataFrame, right: DataFrame) -> DataFrame:
    """The first window minus the second one."""
    return left.unionByName(right.withColumn(WEIGHT, -f.col(WEIGHT)))


def changed(base: DataFrame, netted: DataFrame, shape: Shape) -> DataFrame:
    """The rows of `base`, minus those that a netted window deletes, plus those that it inserts."""
    deletions, insertions = netted.where(f.col(WEIGHT) < 0), netted.where(f.col(WEIGHT) > 0)
    identity = shape.identity
    renamed = [_exact(c).alias(f"k{i}") for i, c in enumerate(identity)]
    deleted = f.broadcast(deletions.select(*renamed, f.col(WEIGHT).alias("k")))
    same = _same_row(shape)
    kept = base.join(deleted, same, "left_anti")
    if not shape.key:
        kept = kept.unionByName(_copies_left(base.join(deleted, same, "inner"), shape))
    return kept.unionByName(_repeated(insertions, f.col(WEIGHT), shape))


def _copies_left(matched: DataFrame, shape: Shape) -> DataFrame:
    """The remaining copies of rows that are equal in all columns."""
    groups = [f.col(f"k{i}") for i in range(len(shape.columns))]
    firsts = [f.first(c.name).alias(c.name) for c in shape.columns]
    counted = matched.groupBy(*groups).agg((f.count(f.lit(1)) + f.first("k")).alias("k"), *firsts)
    checked = f.when(f.col("k") < 0, f.raise_error(f.lit(MISSING_ROW)).cast("bigint")).otherwise(f.col("k"))
    return _repeated(counted.select(checked.alias("k"), *shape.names), f.col("k"), shape)


MISSING_ROW = "a replica lacks a row that its window deletes"


def _repeated(rows: DataFrame, times: Column, shape: Shape) -> DataFrame:
    """Repeats each row by its count."""
    copies = f.explode(f.array_repeat(f.lit(0), times.cast("int")))
    return rows.select(*shape.names, copies.alias("copy")).select(*shape.names)


def write_sorted(frame: DataFrame, shape: Shape, target: str, *, parts: int | None, rows_per_file: int) -> None:
    """Writes Parquet files in the order of the key, so that a range of keys is in few files.

    `parts`: redistributes the rows into this number of ranges; None: partitions are unchanged.
    """
    in_order(frame, shape, parts).write.option("compression", "zstd").option(
        "maxRecordsPerFile", rows_per_file
    ).parquet(target)


def in_order(frame: DataFrame, shape: Shape, parts: int | None) -> DataFrame:
    """The rows of each partition in the order of the key, with the names in files."""
    order = [c.name for c in shape.identity]
    if parts is not None:
        frame = frame.repartitionByRange(parts, *order) if parts > 1 else frame.coalesce(1)
    return frame.sortWithinPartitions(*order).select(*(f.col(c.name).alias(c.physical) for c in shape.columns))


def write_one(frame: DataFrame, target: str) -> None:
    """Writes one Parquet file."""
    frame.coalesce(1).write.parquet(target)


def files_with(
    spark: SparkSession, uris: Sequence[str], netted: DataFrame, shape: Shape, scan: Scan = spark_scan
) -> set[str]:
    """Names of the files with rows that the netted window deletes."""
    identity = shape.identity
    read = scan(spark, uris, [(c.physical, c.ddl) for c in identity], with_file=True)
    rows = read.select(*(f.col(f"`{c.physical}`").alias(c.name) for c in identity), f.col(f"`{FILE}`").alias("file"))
    deleted = netted.where(f.col(WEIGHT) < 0).select(*(_exact(c).alias(f"k{i}") for i, c in enumerate(identity)))
    same = _same_row(shape)
    return {row[0] for row in rows.join(f.broadcast(deleted), same, "left_semi").select("file").distinct().collect()}


def difference(left: DataFrame, right: DataFrame, shape: Shape) -> tuple[int, int]:
    """Rows that only `left` has, and rows that only `right` has, with their number."""
    signed = left.select(f.lit(1).cast("bigint").alias(WEIGHT), *shape.names).unionByName(
        right.select(f.lit(-1).cast("bigint").alias(WEIGHT), *shape.names)
    )
    only = net(signed, shape)
    row = only.agg(
        f.coalesce(f.sum(f.when(f.col(WEIGHT) > 0, f.col(WEIGHT))), f.lit(0)),
        f.coalesce(f.sum(f.when(f.col(WEIGHT) < 0, -f.col(WEIGHT))), f.lit(0)),
    ).collect()[0]
    return int(row[0]), int(row[1])


def _exact(column: StoredAs) -> Column:
    return f.col(column.name).cast("string") if column.ddl in _FLOATS else f.col(column.name)


def _same_row(shape: Shape) -> Column:
    """Whether a row has the identity k0, k1, ... Columns of a key are never NULL, and Spark joins by `=` with less
    memory and time than by `<=>`."""
    pairs = [(_exact(c), f.col(f"k{i}")) for i, c in enumerate(shape.identity)]
    return _all([one == other if shape.key else one.eqNullSafe(other) for one, other in pairs])


def _all(conditions: Sequence[Column]) -> Column:
    conjunction = conditions[0]
    for condition in conditions[1:]:
        conjunction = conjunction & condition
    return conjunction


@dataclass(frozen=True, slots=True)
class _TableReader:
    """Runs in executors."""

    session: Handover
    columns: Sequence[tuple[str, str]]

    def __call__(self, sql: str) -> Iterator[pa.RecordBatch]:
        with reporting(unable=True):
            conn = take_over(self.session, role="load", in_snapshot=True)
        with conn, reporting(), translated():
            for batch in rows_of(conn, sql, self.columns, batch_bytes=BATCH_BYTES):
                yield from batch.to_batches()
