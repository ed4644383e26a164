"""How values are encoded for Spark and decoded by PostgreSQL (ADR 6).

A row, or the key of a group, is sent as one text: PostgreSQL's array of the exact texts of its columns. So infinity,
NaN, year 10000 and the digits of a numeric are preserved, and the delta rows of all stream tables have the same layout,
so that one job can net them. A key (GROUP BY) has a canonical text: equal texts mean equal values; a type without one
is refused by name. Spark computes on checked decimals only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgtrickle.model.catalog import Column
from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.model.texts import as_text, from_text

BOOL, INT8, INT2, INT4, TEXT, OID, FLOAT4, FLOAT8 = 16, 20, 21, 23, 25, 26, 700, 701
BPCHAR, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 1042, 1043, 1082, 1114, 1184, 1700

PRECISION, SCALE = 38, 18  # the decimal type of numbers in Spark
INTEGERS = frozenset({INT2, INT4, INT8})
# Types whose text decides equality. By number: "char", name, bytea, uuid, time, inet, cidr, macaddr, macaddr8, pg_lsn,
# xid8, bit, varbit, int4range, int8range, daterange.
_COMPARABLE = INTEGERS | {BOOL, OID, TEXT, VARCHAR, BPCHAR, DATE, TIMESTAMP, TIMESTAMPTZ}
_COMPARABLE |= {18, 19, 17, 2950, 1083, 869, 650, 829, 774, 3220, 5069, 1560, 1562, 3904, 3926, 3912}
# Types whose text does not depend on DateStyle, IntervalStyle and similar settings. By number: "char", name, uuid.
UNFORMATTED = INTEGERS | {BOOL, OID, TEXT, VARCHAR, BPCHAR, NUMERIC, 18, 19, 2950}


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type of a result column; `base` and `kind` are those of the base type of a domain (kind: pg_type.typtype)."""

    typid: int
    typmod: int
    name: str  # format_type
    base: int
    kind: str
    element: int = 0  # the element type of an array
    collation: str | None = None  # quoted; None: the default collation

    @property
    def declared(self) -> str:
        """The type for a column declaration or a cast."""
        return f"{self.name} COLLATE {self.collation}" if self.collation else self.name


def encoded(texts: Sequence[str]) -> str:
    """Column texts as one text; a cast to text[] reverses it (see `decoded`)."""
    return f"ARRAY[{', '.join(texts)}]::text[]::text"


def decoded(array: str, position: int, type_name: str, base: int) -> str:
    """Column `position` of an encoded row whose array is given."""
    return from_text(f"({array})[{position + 1}]", type_name, base)


def exact(sql: str, base: int) -> str:
    """The exact text of a value that Spark does not interpret."""
    return as_text(f"({sql})", base)


def texts(alias: str, columns: Sequence[Column | SqlType]) -> str:
    """The columns c0, c1, ... of `alias` as one text."""
    return encoded([exact(f"{alias}.c{i}", c.base) for i, c in enumerate(columns)])


def key(sql: str, type_: SqlType) -> str:
    """A grouping key as text: equal texts exactly when the values are equal."""
    if type_.base in (NUMERIC, FLOAT4, FLOAT8):
        return f"{key_value(sql, type_)}::text"
    if is_comparable(type_):
        return exact(sql, type_.base)
    raise NotDifferentiableError(Reason.of(ReasonCode.GROUPING_TYPE, type=type_.name))


def key_value(sql: str, type_: SqlType) -> str:
    """The canonical value, in the key's type."""
    if type_.base == NUMERIC:
        return f"pg_catalog.trim_scale({sql})"
    if type_.base in (FLOAT4, FLOAT8):  # -0 and 0 are one group
        return f"(({sql}) + 0::{'float4' if type_.base == FLOAT4 else 'float8'})"
    return sql


def is_comparable(type_: SqlType) -> bool:
    """Whether values are equal exactly when their texts are: not for character without a length, whose trailing blanks
    are not significant."""
    if type_.base == BPCHAR and type_.typmod < 0:
        return False
    return type_.base in _COMPARABLE or type_.kind == "e" or type_.element in _COMPARABLE - {OID, BPCHAR}


def order(sql: str, type_: SqlType, *, descending: bool = False) -> str | None:
    """The text of a number that orders as the value does, or in reverse; None if there is none (text has collations).

    NaN sorts after all numbers, so in reverse it is '-NaN', which sorts before all.
    """
    number = _order(sql, type_)
    if number is None or not descending:
        return None if number is None else f"({number})::text"
    negated = f"(-({number}))::text"
    return f"CASE WHEN ({sql}) = 'NaN'::numeric THEN '-NaN' ELSE {negated} END" if type_.base == NUMERIC else negated


def _order(sql: str, type_: SqlType) -> str | None:
    zero = "DATE '2000-01-01'"
    if type_.base in INTEGERS or type_.base == NUMERIC:
        return f"({sql})::numeric"
    if type_.base == DATE:
        return _or_infinite(sql, f"(({sql}) - {zero})::numeric", zero)
    if type_.base in (TIMESTAMP, TIMESTAMPTZ):
        return _or_infinite(sql, f"{microseconds(sql, with_zone=type_.base == TIMESTAMPTZ)}::numeric", zero)
    return None


def microseconds(sql: str, *, with_zone: bool) -> str:
    """A finite timestamp as microseconds since 2000-01-01, as bigint.

    EXTRACT(EPOCH) of a timestamp is a float before PostgreSQL 14, and is rounded for the last years of the calendar; of
    the time of day it is exact in all versions.
    """
    local = f"(({sql}) AT TIME ZONE 'UTC')" if with_zone else f"({sql})"
    days = f"({local}::date - DATE '2000-01-01')::int8 * 86400000000"
    return f"({days} + (EXTRACT(EPOCH FROM {local}::time) * 1000000)::int8)"


def _or_infinite(sql: str, finite: str, zero: str) -> str:
    """Represents infinity by numbers beyond every finite one."""
    return (
        f"CASE WHEN pg_catalog.isfinite({sql}) THEN {finite} "
        f"WHEN ({sql}) > {zero} THEN 1e19 WHEN ({sql}) < {zero} THEN -1e19 END"
    )


def numeric_scale(typmod: int) -> int | None:
    """The declared scale of a numeric(p,s); None for an unconstrained one."""
    if typmod < 4:
        return None
    scale = (typmod - 4) & 0x7FF
    return scale if scale < 1024 else None  # a negative scale rounds left of the point: treated as unknown
