"""Columns of a stream table in Spark: their types, the SQL that reads them, and their values in Arrow.

| PostgreSQL | Spark |
|---|---|
| boolean, smallint, integer, bigint, real, double precision | boolean, smallint, int, bigint, float, double |
| numeric(p,s), s >= 0, at most 38 digits | decimal(p,s) |
| date, timestamp, timestamptz | date, timestamp_ntz, timestamp |
| bytea | binary |
| everything else | string: PostgreSQL's exact text |

A column that is read as string whatever its type is that exact text, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle.db import catalog
from pgtrickle.db.copy import read_batches
from pgtrickle.db.statements import statement
from pgtrickle.errors import ConfigError, DefinitionError, SourceChangedError
from pgtrickle.model.identifiers import qualified, quote_ident
from pgtrickle.model.texts import as_text
from pgtrickle.pipeline import codec
from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.expressions.types import PgType, encode_value

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection

STRING = "string"
BYTEA = 17
BATCH_BYTES = 4 << 20
_MOST_DIGITS = 38
_PLAIN = {
    codec.BOOL: "boolean",
    codec.INT2: "smallint",
    codec.INT4: "int",
    codec.INT8: "bigint",
    codec.FLOAT4: "float",
    codec.FLOAT8: "double",
    codec.DATE: "date",
    codec.TIMESTAMP: "timestamp_ntz",
    codec.TIMESTAMPTZ: "timestamp",
    BYTEA: "binary",
}
_TIMES = {"date": "date", "timestamp_ntz": "timestamp", "timestamp": "timestamptz"}  # as PgType names them
_DAYS, _MICROSECONDS = 10_957, 946_684_800_000_000  # from 1970 to 2000


@dataclass(frozen=True, slots=True)
class SparkColumn:
    """`spark`: its type in Spark's DDL."""

    name: str
    type: SqlType
    spark: str

    def read(self, alias: str) -> str:
        """SQL for its value, in a form that Arrow's CSV reader takes."""
        sql = f"{alias}.{quote_ident(self.name)}"
        if self.spark == STRING:
            return as_text(sql, self.type.base)
        if self.spark in _TIMES:
            return encode_value(sql, PgType(_TIMES[self.spark]))
        return f"pg_catalog.encode({sql}, 'hex')" if self.spark == "binary" else sql

    @property
    def shown(self) -> tuple[str, str]:
        return self.name, self.spark

    def as_string(self) -> SparkColumn:
        return SparkColumn(self.name, self.type, STRING)


@dataclass(frozen=True, slots=True)
class TableToRead:
    """A stream table with its visible columns."""

    schema: str
    name: str
    is_loaded: bool
    columns: tuple[SparkColumn, ...]

    @property
    def sql(self) -> str:
        return qualified(self.schema, self.name)

    def selected(self, names: Sequence[str]) -> tuple[SparkColumn, ...]:
        """The columns with these names, in this order; all if there are none."""
        known = {column.name: column for column in self.columns}
        if missing := [name for name in names if name not in known]:
            raise ConfigError(
                f"{self.schema}.{self.name} has no column {missing[0]}", hint=f"it has {', '.join(known) or 'none'}"
            )
        return tuple(known[name] for name in names) or self.columns


def find_stream_table(conn: Connection, name: str) -> TableToRead:
    row = conn.execute(statement("stream_table_columns"), {"name": name}).fetchone()
    assert row is not None
    schema, table, is_loaded, names = row
    shown = ", ".join(quote_ident(each) for each in names)
    types = [SqlType(*each) for each in catalog.describe(conn, f"SELECT {shown} FROM {qualified(schema, table)}")]
    columns = [SparkColumn(each, type_, _spark_type(type_)) for each, type_ in zip(names, types, strict=True)]
    return TableToRead(schema, table, is_loaded, tuple(columns))


def require_same(conn: Connection, name: str, columns: Sequence[SparkColumn]) -> None:
    """Raises if the columns of the stream table are no longer what they were."""
    present = {column.name: column.type for column in find_stream_table(conn, name).columns}
    for column in columns:
        if present.get(column.name) != column.type:
            raise SourceChangedError(
                f"column {column.name} of {name} was dropped or has another type", hint="start the query again"
            )


def _spark_type(type_: SqlType) -> str:
    scale = codec.numeric_scale(type_.typmod) if type_.base == codec.NUMERIC else None
    if scale is not None:
        precision = (type_.typmod - 4) >> 16
        return f"decimal({precision},{scale})" if 0 <= scale <= precision <= _MOST_DIGITS else STRING
    return _PLAIN.get(type_.base, STRING)


def read_rows(conn: Connection, query: str, shown: Sequence[tuple[str, str]]) -> Iterator[pa.RecordBatch]:
    """The rows of a query as Spark takes them. `shown`: name and type in Spark of each of its columns."""
    import pyarrow as pa

    names = [name for name, _ in shown]
    try:
        types = [_csv_type(spark) for _, spark in shown]
        for table in read_batches(conn, query, types, batch_bytes=BATCH_BYTES):
            arrays = [_value(table.column(i), *each) for i, each in enumerate(shown)]
            yield from pa.Table.from_arrays(arrays, names=names).to_batches()
    except pa.ArrowInvalid as error:
        raise unfit(str(error).splitlines()[0]) from None


def unfit(detail: str) -> DefinitionError:
    return DefinitionError(
        f"a value has no form in the type of its column in Spark: {detail}",
        hint="read the column as its text, with .schema(...) and the type string",
    )


def _csv_type(spark: str) -> pa.DataType:
    import pyarrow as pa

    if spark.startswith("decimal"):
        precision, scale = spark.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    names = {"boolean": "bool_", "smallint": "int16", "int": "int32", "bigint": "int64", "float": "float32"}
    names |= {"double": "float64", "date": "int32", "timestamp": "int64", "timestamp_ntz": "int64"}
    return getattr(pa, names.get(spark, "string"))()


def _value(values: Any, name: str, spark: str) -> Any:
    """Arrow's array of Spark's type, of what the CSV reader has read."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if spark == "binary":
        return pa.chunked_array([[None if v is None else bytes.fromhex(v) for v in values.to_pylist()]], pa.binary())
    if spark not in _TIMES:
        return values
    type_, offset = (pa.int32(), _DAYS) if spark == "date" else (pa.int64(), _MICROSECONDS)
    limits = (2**31 - 1, -(2**31)) if spark == "date" else (2**63 - 1, -(2**63))
    if pc.any(pc.is_in(values, pa.array(limits, type_))).as_py():
        raise unfit(f"infinity in column {name}")
    moved = pc.add_checked(values, pa.scalar(offset, type_))
    if spark == "date":
        return moved.cast(pa.date32())
    return moved.cast(pa.timestamp("us", tz="UTC" if spark == "timestamp" else None))
