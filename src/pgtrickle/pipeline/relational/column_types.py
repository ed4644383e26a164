"""How a column of a PostgreSQL table is stored for Spark: by replicas, and for the queries that read them. Pure.

| PostgreSQL | Spark, Parquet | value |
|---|---|---|
| boolean | boolean | |
| smallint, integer, bigint | smallint, int, bigint | |
| real, double precision | float, double | NaN, infinities and -0 unchanged |
| numeric(p,s), s >= 0, at most 38 digits | decimal | a column that contains NaN is stored as text |
| other numeric | string | the exact text, whose display scale is part of the value |
| text, varchar | string | |
| character(n) | string | without trailing blanks |
| date | int | days since 2000-01-01; `DATE_INFINITY`, `DATE_MINUS_INFINITY` |
| timestamp, timestamptz | bigint | microseconds since 2000-01-01 (UTC); `INFINITY`, `MINUS_INFINITY` |
| bytea | string | hexadecimal, without a prefix |
| everything else | string | the exact text; equal texts are equal values only where `StoredColumn.type` is set |

Spark's DATE and TIMESTAMP are not used: they have neither infinity nor all of PostgreSQL's years (ADR 16). The session
that evaluates `StoredColumn.read` must have DateStyle ISO, IntervalStyle postgres, TimeZone UTC, bytea_output hex and
extra_float_digits 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle.errors import DefinitionError
from pgtrickle.pipeline.codec import NUMERIC, SqlType, exact, numeric_scale
from pgtrickle.pipeline.expressions.types import MOST_DIGITS, PgType, encode_value, pg_type, spark_type
from pgtrickle.pipeline.relational.inputs import InputColumn

TEXT = "string"


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """`ddl`: the type of the stored column, in Spark's DDL. `type` None: queries on Spark cannot read it."""

    ddl: str
    type: PgType | None
    sql_type: SqlType

    @property
    def is_decimal(self) -> bool:
        return self.ddl.startswith("decimal")

    def read(self, sql: str) -> str:
        """SQL for PostgreSQL: the value of the column, or of an expression of its type, in its stored form."""
        if self.is_decimal:
            return f"({sql})"
        return exact(sql, self.sql_type.base) if self.type is None else encode_value(sql, self.type)

    def input(self, name: str) -> InputColumn:
        """The column as input of `compile_query`."""
        return InputColumn(name, self.type, self.is_decimal, self.sql_type.name)


def stored_column(
    type_: SqlType, *, collation: str = "", deterministic: bool = True, as_text: bool = False
) -> StoredColumn:
    """`collation`: the name of the column's collation, also if it is the default one.

    `as_text`: a numeric that has held a NaN, which a decimal cannot represent.
    """
    try:
        known = pg_type(type_, collation=collation, deterministic=deterministic)
    except DefinitionError:
        return StoredColumn(TEXT, None, type_)
    if _fits_decimal(type_) and not as_text:
        return StoredColumn(known.decimal, known, type_)
    return StoredColumn(spark_type(known), known, type_)


def _fits_decimal(type_: SqlType) -> bool:
    scale = numeric_scale(type_.typmod) if type_.base == NUMERIC else None
    if scale is None:
        return False
    precision = (type_.typmod - 4) >> 16
    return max(precision, scale) <= MOST_DIGITS
