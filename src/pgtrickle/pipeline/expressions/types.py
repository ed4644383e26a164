"""PostgreSQL's types in expressions on Spark, and their encoded form: how Spark columns represent their values.

The encoded form follows PostgreSQL's representation: integers and floats unchanged, a numeric as its exact text (its
display scale is part of the value), a date as days and a timestamp as microseconds since 2000-01-01, with PostgreSQL's
numbers for infinity, a char(n) without trailing blanks, bytea in hexadecimal. All other types are opaque: their exact
text, which is compared only if equal texts mean equal values. Spark's dates and timestamps are not used, because they
have neither infinity nor all of PostgreSQL's years.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pgtrickle.errors import DefinitionError
from pgtrickle.model.texts import from_text
from pgtrickle.pipeline import codec

Column = Any  # pyspark.sql.Column, classic or Connect
Functions = Any  # the module pyspark.sql.functions; passed as an argument, so that only `translate` imports Spark

INTEGERS = ("int2", "int4", "int8")
FLOATS = ("float4", "float8")
NUMBERS = (*INTEGERS, "numeric", *FLOATS)  # in PostgreSQL's order of implicit casts
TEXTS = ("text", "varchar", "bpchar")
TIMES = ("date", "timestamp", "timestamptz")
ORDERED = ("bool", *NUMBERS, *TEXTS, *TIMES, "bytea", "uuid")

MOST_DIGITS, SCALE = codec.PRECISION, codec.SCALE
WHOLE = MOST_DIGITS - SCALE
# The histogram of scales in states of groups (`plan/measures.py`): its name as a function, and digits for each scale.
SCALE_HISTOGRAM, DIGITS_OF_A_SCALE = "scale_histogram", 12

DATE_INFINITY, DATE_MINUS_INFINITY = 2**31 - 1, -(2**31)
INFINITY, MINUS_INFINITY = 2**63 - 1, -(2**63)
DAY = 86_400_000_000  # microseconds

# Collations that order text by code point, as Spark does.
BY_CODE_POINT = frozenset({"C", "POSIX", "ucs_basic", "C.UTF-8", "C.utf8", "pg_c_utf8"})
# Those of them in which only ASCII letters have a case.
ONLY_ASCII = frozenset({"C", "POSIX", "ucs_basic"})
CONFLICT = "(conflicting)"
# The default collation of the database; "" if it is not known.
default_collation: ContextVar[str] = ContextVar("default_collation", default="")
# Settings of the author's session that affect times; "" if they are not known.
date_style: ContextVar[str] = ContextVar("date_style", default="")
time_zone: ContextVar[str] = ContextVar("time_zone", default="")
UTC = frozenset({"UTC", "ETC/UTC", "GMT", "ETC/GMT", "Z", "ZULU", "ETC/ZULU", "UCT", "ETC/UCT"})
NO_LENGTH = "type bpchar without a length does not travel: its trailing blanks are lost"


@dataclass(frozen=True, slots=True)
class PgType:
    """A type, with the bounds of its values.

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
    base: int = field(default=0, compare=False)  # oid of an opaque type; of a domain, its base type

    @property
    def sql_name(self) -> str:
        """The type in messages and casts."""
        if self.name == "opaque":
            return self.label
        sql = _SQL_NAMES.get(self.name, self.name)
        return f"{sql}({self.length})" if self.length is not None else sql

    @property
    def orders_by_code_point(self) -> bool:
        """Whether Spark orders the texts as PostgreSQL does."""
        return (self.collation or default_collation.get()) in BY_CODE_POINT

    @property
    def decimal(self) -> str:
        """Spark's type of a numeric's value."""
        return f"decimal({min(MOST_DIGITS, max(1, self.whole + self.scale))},{self.scale})"


_SQL_NAMES = {"varchar": "character varying", "bpchar": "character", "bool": "boolean"}
UNKNOWN = PgType("unknown")
NUMERIC = PgType("numeric", WHOLE, SCALE, fixed=False)
BOOL, INT4, INT8, TEXT = PgType("bool"), PgType("int4"), PgType("int8"), PgType("text")

_BY_OID = {
    codec.BOOL: "bool",
    codec.INT2: "int2",
    codec.INT4: "int4",
    codec.INT8: "int8",
    codec.FLOAT4: "float4",
    codec.FLOAT8: "float8",
    codec.TEXT: "text",
    codec.DATE: "date",
    codec.TIMESTAMP: "timestamp",
    codec.TIMESTAMPTZ: "timestamptz",
    17: "bytea",
    2950: "uuid",
    3802: "jsonb",
}


def numeric(precision: int, scale: int) -> PgType:
    """numeric(p,s). A value with more than 38 digits stops the refresh."""
    if scale > MOST_DIGITS - 1:
        raise DefinitionError(f"numeric({precision},{scale}) has more digits than Spark supports")
    whole = max(precision - scale, 0)
    return PgType("numeric", min(whole, MOST_DIGITS - max(scale, 0)), max(scale, 0))


def pg_type(type_: codec.SqlType, *, collation: str = "", deterministic: bool = True) -> PgType:
    """The type of a column; of a domain, its base type. `collation` is a name, also for the default collation."""
    if type_.base in _BY_OID:
        name = _BY_OID[type_.base]
        return PgType(name, collation=collation, deterministic=deterministic) if name == "text" else PgType(name)
    if type_.base == codec.NUMERIC:
        scale = codec.numeric_scale(type_.typmod)
        return NUMERIC if scale is None else numeric((type_.typmod - 4) >> 16, scale)
    if type_.base in (codec.VARCHAR, codec.BPCHAR):
        name = "varchar" if type_.base == codec.VARCHAR else "bpchar"
        length = type_.typmod - 4 if type_.typmod > 4 else None
        if name == "bpchar" and length is None:
            raise DefinitionError(NO_LENGTH)
        return PgType(name, length=length, collation=collation, deterministic=deterministic)
    if codec.is_comparable(type_):
        return PgType("opaque", label=type_.name, base=type_.base)
    raise DefinitionError(f"type {type_.name} cannot be used in an expression on Spark")


def encode_value(sql: str, type_: PgType) -> str:
    """SQL that encodes the value for a column of `spark_type`."""
    match type_.name:
        case "date":
            finite = f"(({sql}) - DATE '2000-01-01')"
            return _infinite(sql, finite, f"{DATE_INFINITY}", f"'{DATE_MINUS_INFINITY}'::int4", "DATE")
        case "timestamp" | "timestamptz":
            finite = codec.microseconds(sql, with_zone=type_.name == "timestamptz")
            return _infinite(sql, finite, f"{INFINITY}", f"'{MINUS_INFINITY}'::int8", "TIMESTAMP")
        case "bytea":
            return f"pg_catalog.encode({sql}, 'hex')"
        case "bool" | "int2" | "int4" | "int8" | "float4" | "float8":
            return f"({sql})"
    return codec.exact(sql, type_.base)


def decode_value(sql: str, type_: PgType) -> str:
    """SQL that decodes an encoded value (of PostgreSQL's counterpart of `spark_type`)."""
    match type_.name:
        case "date":
            finite = f"DATE '2000-01-01' + ({sql})"
            return (
                f"CASE ({sql}) WHEN {DATE_INFINITY} THEN DATE 'infinity' WHEN '{DATE_MINUS_INFINITY}'::int4 "
                f"THEN DATE '-infinity' ELSE {finite} END"
            )
        case "timestamp" | "timestamptz":
            # Two steps, because intervals are multiplied as float8, which represents all hours, and all microseconds of
            # an hour, exactly. Hours, not days: a day may have 23 hours in a time zone.
            kind = "TIMESTAMP" if type_.name == "timestamp" else "TIMESTAMP WITH TIME ZONE"
            zone = "" if type_.name == "timestamp" else "+00"
            hours = f"(({sql}) / 3600000000) * INTERVAL '1 hour'"
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
    """Spark's type of the encoded form, in DDL."""
    return _SPARK.get(type_.name, "string")


# Types of staging columns: a binary COPY sends Spark's value as a value of that type.
_STAGED = {"boolean": "bool", "smallint": "int2", "int": "int4", "bigint": "int8", "float": "float4"}
_STAGED |= {"double": "float8", "string": "text"}
_SENT = ("date", "timestamp", "timestamptz")  # days and microseconds since 2000, as PostgreSQL stores them


def staged_type(type_: PgType) -> str:
    """The type of a staging column that a binary COPY fills with values of `spark_type`."""
    return type_.name if type_.name in _SENT else _STAGED[spark_type(type_)]


def from_staged(sql: str, type_: PgType) -> str:
    """SQL that decodes the value of a staging column."""
    return f"({sql})" if type_.name in _SENT else decode_value(sql, type_)


def combined(types: Sequence[PgType], name: str) -> PgType:
    """The type of a text made of texts: an explicit collation takes precedence; those of columns must agree."""
    deciding = [t for t in types if t.explicit] or types
    named = {t.collation for t in deciding if t.collation}
    return PgType(
        name,
        collation=CONFLICT if len(named) > 1 else next(iter(named), ""),
        deterministic=all(t.deterministic for t in deciding),
        explicit=any(t.explicit for t in deciding),
    )
