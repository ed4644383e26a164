"""PostgreSQL's types as expressions in Spark know them, and the form in which their values travel.

A value travels in the form in which PostgreSQL itself computes with it: integers and floats as they are, a numeric as
its exact text (its display scale is part of the value), a date as days and a timestamp as microseconds since
2000-01-01, with PostgreSQL's own numbers for infinity, a char(n) without its blanks, bytea in hexadecimal. Everything
else is opaque: its exact text, which is compared only where equal text means equal value. Nothing is converted to
Spark's dates and timestamps, which know neither infinity nor all of PostgreSQL's years.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pgtrickle.errors import DefinitionError
from pgtrickle.model.texts import from_text
from pgtrickle.pipeline import codec as carriers

Column = Any  # pyspark.sql.Column, classic or Connect
Functions = Any  # the module pyspark.sql.functions, handed in so that only `translate` imports Spark

INTEGERS = ("int2", "int4", "int8")
FLOATS = ("float4", "float8")
NUMBERS = (*INTEGERS, "numeric", *FLOATS)  # in the order in which PostgreSQL widens them
TEXTS = ("text", "varchar", "bpchar")
TIMES = ("date", "timestamp", "timestamptz")
ORDERED = ("bool", *NUMBERS, *TEXTS, *TIMES, "bytea", "uuid")

MOST_DIGITS, SCALE = carriers.PRECISION, carriers.SCALE
WHOLE = MOST_DIGITS - SCALE

DATE_INFINITY, DATE_MINUS_INFINITY = 2**31 - 1, -(2**31)
INFINITY, MINUS_INFINITY = 2**63 - 1, -(2**63)
DAY = 86_400_000_000  # microseconds

# Collations under which text is ordered by code point, which is how Spark orders it.
BY_CODE_POINT = frozenset({"C", "POSIX", "ucs_basic"})
CONFLICT = "(conflicting)"
NO_LENGTH = "type bpchar without a length does not travel: its trailing blanks are lost"


@dataclass(frozen=True, slots=True)
class PgType:
    """A type and what is known of its values.

    numeric: `whole` and `scale` bound the digits before and after the point; `fixed` says that every value has exactly
    `scale` digits after it, else each has its own display scale. Texts: `length` of char(n) and varchar(n); `collation`
    is the name, "" when nothing decides it (a constant); `deterministic` is the collation's; `explicit`: by COLLATE.
    opaque: `label` is the type's name in SQL.
    """

    name: str
    whole: int = 0
    scale: int = 0
    fixed: bool = True
    length: int | None = None
    collation: str = ""
    deterministic: bool = True
    explicit: bool = False
    label: str = ""
    base: int = field(default=0, compare=False)  # of an opaque one, looked through domains

    @property
    def sql_name(self) -> str:
        """The type in messages and casts."""
        if self.name == "opaque":
            return self.label
        sql = _SQL_NAMES.get(self.name, self.name)
        return f"{sql}({self.length})" if self.length is not None else sql

    @property
    def decimal(self) -> str:
        """Spark's type of a numeric's value."""
        return f"decimal({min(MOST_DIGITS, max(1, self.whole + self.scale))},{self.scale})"


_SQL_NAMES = {"varchar": "character varying", "bpchar": "character", "bool": "boolean"}
UNKNOWN = PgType("unknown")
NUMERIC = PgType("numeric", WHOLE, SCALE, fixed=False)
BOOL, INT4, INT8, TEXT = PgType("bool"), PgType("int4"), PgType("int8"), PgType("text")

_BY_OID = {
    carriers.BOOL: "bool",
    carriers.INT2: "int2",
    carriers.INT4: "int4",
    carriers.INT8: "int8",
    carriers.FLOAT4: "float4",
    carriers.FLOAT8: "float8",
    carriers.TEXT: "text",
    carriers.DATE: "date",
    carriers.TIMESTAMP: "timestamp",
    carriers.TIMESTAMPTZ: "timestamptz",
    17: "bytea",
    2950: "uuid",
}


def numeric(precision: int, scale: int) -> PgType:
    """numeric(p,s). Of more than 38 digits the first do not travel: a value that has them stops the refresh."""
    if scale > MOST_DIGITS - 1:
        raise DefinitionError(f"numeric({precision},{scale}) has more digits than expressions in Spark carry")
    whole = max(precision - scale, 0)
    return PgType("numeric", min(whole, MOST_DIGITS - max(scale, 0)), max(scale, 0))


def pg_type(type_: carriers.SqlType, *, collation: str = "", deterministic: bool = True) -> PgType:
    """The type of a column. `collation` is its name even where it is the database's own; domains are looked through."""
    if type_.base in _BY_OID:
        name = _BY_OID[type_.base]
        return PgType(name, collation=collation, deterministic=deterministic) if name == "text" else PgType(name)
    if type_.base == carriers.NUMERIC:
        scale = carriers.numeric_scale(type_.typmod)
        return NUMERIC if scale is None else numeric((type_.typmod - 4) >> 16, scale)
    if type_.base in (carriers.VARCHAR, carriers.BPCHAR):
        name = "varchar" if type_.base == carriers.VARCHAR else "bpchar"
        length = type_.typmod - 4 if type_.typmod > 4 else None
        if name == "bpchar" and length is None:
            raise DefinitionError(NO_LENGTH)
        return PgType(name, length=length, collation=collation, deterministic=deterministic)
    if carriers.is_comparable(type_):
        return PgType("opaque", label=type_.name, base=type_.base)
    raise DefinitionError(f"type {type_.name} cannot be used in an expression that joins databases")


def encode_value(sql: str, type_: PgType) -> str:
    """SQL for the leaf that reads the value: what a column of `spark_type` receives."""
    match type_.name:
        case "date":
            finite = f"(({sql}) - DATE '2000-01-01')"
            return _infinite(sql, finite, f"{DATE_INFINITY}", f"'{DATE_MINUS_INFINITY}'::int4", "DATE")
        case "timestamp" | "timestamptz":
            finite = carriers.microseconds(sql, with_zone=type_.name == "timestamptz")
            return _infinite(sql, finite, f"{INFINITY}", f"'{MINUS_INFINITY}'::int8", "TIMESTAMP")
        case "bytea":
            return f"pg_catalog.encode({sql}, 'hex')"
        case "bool" | "int2" | "int4" | "int8" | "float4" | "float8":
            return f"({sql})"
    return carriers.exact(sql, type_.base)


def decode_value(sql: str, type_: PgType) -> str:
    """SQL that turns what travelled (a value of PostgreSQL's counterpart of `spark_type`) back into the type."""
    match type_.name:
        case "date":
            finite = f"DATE '2000-01-01' + ({sql})"
            return (
                f"CASE ({sql}) WHEN {DATE_INFINITY} THEN DATE 'infinity' WHEN '{DATE_MINUS_INFINITY}'::int4 "
                f"THEN DATE '-infinity' ELSE {finite} END"
            )
        case "timestamp" | "timestamptz":
            # Two steps, because an interval is multiplied as float8: all hours are exact in it, and all microseconds of
            # an hour.
            kind = "TIMESTAMP" if type_.name == "timestamp" else "TIMESTAMP WITH TIME ZONE"
            zone = "" if type_.name == "timestamp" else "+00"
            hours = f"(({sql}) / 3600000000) * INTERVAL '1 hour'"  # hours, not days: a day of a time zone may have 23
            finite = f"{kind} '2000-01-01 00:00:00{zone}' + {hours} + (({sql}) % 3600000000) * INTERVAL '1 microsecond'"
            return (
                f"CASE ({sql}) WHEN {INFINITY} THEN {kind} 'infinity' WHEN '{MINUS_INFINITY}'::int8 "
                f"THEN {kind} '-infinity' ELSE {finite} END"
            )
        case "bytea":
            return f"pg_catalog.decode({sql}, 'hex')"
        case "bpchar" if type_.length is None:
            raise DefinitionError(NO_LENGTH)
        case "bool" | "int2" | "int4" | "int8" | "float4" | "float8" | "text":
            return f"({sql})"
    return from_text(f"({sql})", type_.sql_name, type_.base)


def _infinite(sql: str, finite: str, greatest: str, least: str, kind: str) -> str:
    return (
        f"CASE WHEN pg_catalog.isfinite({sql}) THEN {finite} "
        f"WHEN ({sql}) > {kind} '2000-01-01' THEN {greatest} WHEN ({sql}) < {kind} '2000-01-01' THEN {least} END"
    )


_SPARK = {"bool": "boolean", "int2": "smallint", "int4": "int", "int8": "bigint", "float4": "float"}
_SPARK |= {"float8": "double", "date": "int", "timestamp": "bigint", "timestamptz": "bigint"}


def spark_type(type_: PgType) -> str:
    """Spark's type of the column in which the value travels, in DDL."""
    return _SPARK.get(type_.name, "string")


def combined(types: Sequence[PgType], name: str) -> PgType:
    """A text made of texts: a collation that was written wins over those of columns, which have to agree."""
    deciding = [t for t in types if t.explicit] or types
    named = {t.collation for t in deciding if t.collation}
    return PgType(
        name,
        collation=CONFLICT if len(named) > 1 else next(iter(named), ""),
        deterministic=all(t.deterministic for t in deciding),
        explicit=any(t.explicit for t in deciding),
    )
