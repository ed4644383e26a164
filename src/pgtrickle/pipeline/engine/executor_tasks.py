"""Tasks of executors in Python: reading statements into a DataFrame, and writing the rows of one.

They are functions over Arrow batches (`mapInArrow`), not a Python data source: for each use of one Spark starts several
processes that only import a class and plan, which takes seconds on a busy machine.

What a task needs, the password of its session included, is part of the serialized function. Spark shows the name of a
function in plans and in its UI, and nothing of its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def read_statements(
    spark: SparkSession, statements: Sequence[str], read: Callable[[str], Iterator[pa.RecordBatch]], ddl: str
) -> DataFrame:
    """The rows that `read` returns for the statements, one task for each; read again by each action."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(statements[number])

    return spark.range(0, len(statements), 1, len(statements)).mapInArrow(task, ddl)


def write_partitions(rows: DataFrame, write: Callable[[Iterator[pa.RecordBatch]], str]) -> list[str]:
    """Writes each partition that has rows by one call, and returns what the calls return. Spark may run a task twice;
    the result has the attempt that counts, once."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is not None:
            yield pa.RecordBatch.from_pydict({"written": [write(chain((first,), filled))]})

    return [row[0] for row in rows.mapInArrow(task, "written string").collect()]
