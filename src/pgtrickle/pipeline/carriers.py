"""How values travel from PostgreSQL through Spark and back.

Spark computes on integers, booleans and checked decimals. Whatever it only carries travels as PostgreSQL's exact
text, so that infinity, NaN, year 10000 and the digits of a numeric arrive as they left. A key (GROUP BY) travels in a
form in which equal text means equal value; a type without such a form is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle.errors import NotDifferentiableError

BOOL, INT8, INT2, INT4, TEXT, OID, FLOAT4, FLOAT8 = 16, 20, 21, 23, 25, 26, 700, 701
BPCHAR, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 1042, 1043, 1082, 1114, 1184, 1700

INTEGERS = frozenset({INT2, INT4, INT8})
# "char", name, bytea, uuid, time, inet, cidr, macaddr, macaddr8, pg_lsn, xid8, bit, varbit, int4range, int8range,
# daterange
_EQUAL_TEXT = frozenset(
    {
        TEXT,
        VARCHAR,
        BPCHAR,
        18,
        19,
        17,
        DATE,
        TIMESTAMP,
        TIMESTAMPTZ,
        2950,
        1083,
        869,
        650,
        829,
        774,
        3220,
        5069,
        1560,
        1562,
        3904,
        3926,
        3912,
    }
)


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type of a result column; `base` and `kind` look through domains (kind is pg_type.typtype of the base)."""

    typid: int
    typmod: int
    name: str  # format_type
    base: int
    kind: str
    element: int = 0  # the element type of an array


@dataclass(frozen=True, slots=True)
class Carried:
    """`arrow` is one of long, bool, string, decimal:<scale>; `sql` computes the carried form."""

    arrow: str
    sql: str


def exact(sql: str, type_: SqlType) -> Carried:
    """Carries a value that Spark does not look into."""
    if type_.base in INTEGERS:
        return Carried("long", f"({sql})::int8")
    if type_.base == BOOL:
        return Carried("bool", f"({sql})::bool")
    return Carried("string", f"({sql})::text")


def key(sql: str, type_: SqlType) -> Carried:
    """Carries a grouping key: equal carried forms exactly when the values are equal."""
    if type_.base in INTEGERS or type_.base == BOOL:
        return exact(sql, type_)
    if type_.base == NUMERIC:
        return Carried("string", f"pg_catalog.trim_scale({sql})::text")
    if type_.base in (FLOAT4, FLOAT8):
        return Carried(
            "string", f"(({sql}) + 0::{'float4' if type_.base == FLOAT4 else 'float8'})::text"
        )  # -0 and 0 are one group
    if (
        type_.base in _EQUAL_TEXT
        or type_.base == OID
        or type_.kind == "e"
        or type_.element in (_EQUAL_TEXT | INTEGERS | {BOOL})
    ):
        return Carried("string", f"({sql})::text")
    raise NotDifferentiableError(
        f"grouping by type {type_.name} is not maintained from changes: its text does not decide equality"
    )


def order(sql: str, type_: SqlType) -> Carried | None:
    """Carries a value in a form that Spark orders as PostgreSQL does.

    None when there is none (text collates, floats have NaN).
    """
    if type_.base in INTEGERS:
        return Carried("long", f"({sql})::int8")
    if type_.base == DATE:
        return Carried("long", _or_infinite(sql, f"(({sql}) - DATE '2000-01-01')::int8", "DATE '2000-01-01'"))
    if type_.base in (TIMESTAMP, TIMESTAMPTZ):
        # Microseconds since 2000, as PostgreSQL stores them: those since 1970 overflow in the year 294247.
        micros = f"((EXTRACT(EPOCH FROM ({sql})) - 946684800) * 1000000)::int8"
        return Carried("long", _or_infinite(sql, micros, "DATE '2000-01-01'"))
    if type_.base == NUMERIC:
        return Carried("decimal:18", f"({sql})::text")
    return None


def _or_infinite(sql: str, finite: str, zero: str) -> str:
    """Infinity has no distance from anything: the ends of int8 stand for it."""
    return (
        f"CASE WHEN pg_catalog.isfinite({sql}) THEN {finite} "
        f"WHEN ({sql}) > {zero} THEN 9223372036854775807 WHEN ({sql}) < {zero} THEN (-9223372036854775808)::int8 END"
    )


def numeric_scale(typmod: int) -> int | None:
    """The declared scale of a numeric(p,s); None for an unconstrained one."""
    if typmod < 4:
        return None
    scale = (typmod - 4) & 0x7FF
    return scale if scale < 1024 else None  # a negative scale rounds left of the point: treated as unknown
