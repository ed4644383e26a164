"""`spark.read.format("pgtrickle")` and `spark.readStream.format("pgtrickle")`.

Spark imports this module in Python processes of the driver and of executors. They need this package and reach the
database; nothing else of pgtrickle has to run there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pgtrickle.errors import ConfigError
from pgtrickle.pipeline.datasource.columns import (
    STRING,
    SparkColumn,
    TableToRead,
    find_stream_table,
    read_rows,
    require_same,
)
from pgtrickle.pipeline.datasource.filters import conditions
from pgtrickle.pipeline.datasource.options import Options, reporting

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.pipeline.datasource.stream import ChangeReader

NAME = "pgtrickle"
CHANGE = {"_action": "string", "_lsn": "bigint"}  # columns of a stream, beside those of the table


class StreamTableSource(DataSource):  # type: ignore[misc]  # Spark's classes are not followed by the type checker
    """The data source. Spark asks for a schema before it says whether it reads a table or a stream: the option
    `subscriber`, which only a stream has, tells."""

    options: Mapping[str, str]

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        options = self._parsed()
        with reporting():
            shown = [column.shown for column in _table(options).selected(options.columns)]
            if options.subscriber:
                if taken := [name for name, _ in shown if name in CHANGE]:
                    raise ConfigError(f"a column is called {taken[0]}", hint="choose others with the option columns")
                shown = [*CHANGE.items(), *shown]
        return ", ".join(f"{_quoted(name)} {spark}" for name, spark in shown)

    def reader(self, schema: Any) -> TableReader:
        options = self._parsed()
        with reporting():
            if options.subscriber:
                raise ConfigError("a subscriber reads changes", hint="use readStream, or leave the option away")
            columns = wanted_columns(_table(options), schema, ())
        kind = FilteringTableReader if options.push_filters else TableReader
        return kind(options, columns)

    def streamReader(self, schema: Any) -> ChangeReader:  # noqa: N802 - Spark's name
        with reporting():
            try:
                from pgtrickle.pipeline.datasource.stream import ChangeReader
            except ImportError:
                raise ConfigError("reading changes needs Spark 4.2 or later") from None
            options = self._parsed()
            if not options.subscriber:
                raise ConfigError("option subscriber is missing", hint='.option("subscriber", ...): any name')
            columns = wanted_columns(_table(options), schema, tuple(CHANGE))
            return ChangeReader(options, columns, tuple(schema.names))

    def _parsed(self) -> Options:
        with reporting():
            return Options.of(self.options)


def _table(options: Options) -> TableToRead:
    with options.session() as conn:
        return find_stream_table(conn, options.table)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def wanted_columns(table: TableToRead, schema: Any, besides: Sequence[str]) -> tuple[SparkColumn, ...]:
    """The columns that a schema of Spark names, in its order; `besides`: names that are not columns of the table."""
    known = {column.name: column for column in table.columns}
    found = []
    for each in schema.fields:
        column = known.get(each.name)
        if column is None:
            if each.name in besides:
                continue
            raise ConfigError(f"{table.schema}.{table.name} has no column {each.name}")
        given = each.dataType.simpleString()
        if given not in (column.spark, STRING):
            raise ConfigError(f"column {each.name} is read as {column.spark} or string, not as {given}")
        found.append(column if given == column.spark else column.as_string())
    return tuple(found)


class TableReader(DataSourceReader):  # type: ignore[misc]
    """One statement reads the table, so that all rows are of one snapshot."""

    def __init__(self, options: Options, columns: Sequence[SparkColumn]) -> None:
        self.options = options
        self.columns = columns
        self.conditions: list[str] = []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - Spark's signature
        with self.options.session() as conn:
            require_same(conn, self.options.table, self.columns)
            table = find_stream_table(conn, self.options.table)
            if not table.is_loaded:
                raise ConfigError(f"{table.schema}.{table.name} is not loaded yet", hint="pgtrickle run loads it")
            yield from read_rows(conn, self.statement(table.sql), [column.shown for column in self.columns])

    def statement(self, table: str) -> str:
        values = ", ".join(column.read("t") for column in self.columns)
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        return f"SELECT {values} FROM {table} AS t{where}"


class FilteringTableReader(TableReader):
    """Separate, because Spark refuses a reader that takes filters while spark.sql.python.filterPushdown.enabled is
    off, as it is by default."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        self.conditions = conditions(filters, self.columns, "t")
        return filters  # Spark evaluates them again
