"""Text functions in Spark with PostgreSQL's results: both count code points; Spark compares bytes.

Positions and lengths are computed as bigint, so that arithmetic on PostgreSQL's integers does not overflow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pgtrickle.errors import DefinitionError
from pgtrickle.pipeline.expressions.failures import inexact, refused
from pgtrickle.pipeline.expressions.types import ONLY_ASCII, Column, Functions, PgType, spark_type
from pgtrickle.pipeline.expressions.values import Value

_ANYTHING = ".*?"
_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"


def joined(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.concat(*(v.column for v in a))


def concat(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    """The function concat, which ignores NULLs."""
    return f.concat(*(f.coalesce(v.column, f.lit("")) for v in a))


def length(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.char_length(a[0].column)


def octet_length(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.octet_length(a[0].column)


def reverse(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.reverse(a[0].column)


def _part(f: Functions, text: Column, start: Column, stop: Column) -> Column:
    """The text from `start` (counted from 1) to before `stop`; both are bigint and may be outside the text."""
    first = f.greatest(start, f.lit(1))
    last = f.least(stop, f.char_length(text).cast("bigint") + 1)
    known = start.isNotNull() & stop.isNotNull()
    part = f.substring(text, f.least(first, last).cast("int"), (last - f.least(first, last)).cast("int"))
    return f.when(known & text.isNotNull(), f.when(last > first, part).otherwise(f.lit("")))


def substring(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    start = a[1].column.cast("bigint")
    if len(a) == 2:
        return _part(f, a[0].column, start, f.lit(1 << 40))
    first, many = a[1].constant, a[2].constant
    if isinstance(first, int) and isinstance(many, int) and first >= 1 and many >= 0:
        return f.substring(a[0].column, f.lit(first), f.lit(many))
    count = a[2].column.cast("bigint")
    negative = (count < 0) & a[0].column.isNotNull() & start.isNotNull()
    part = _part(f, a[0].column, start, start + count)
    return f.when(negative, refused(f, "negative substring length not allowed")).otherwise(part)


def left(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    """A negative number is the number of characters to omit at the other end."""
    text, n = a[0].column, a[1].column.cast("bigint")
    stop = f.when(n < 0, f.char_length(text).cast("bigint") + n).otherwise(n)
    return _part(f, text, f.lit(1).cast("bigint"), stop + 1)


def right(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    """The smallest integer cannot be negated: PostgreSQL then omits nothing."""
    text, n = a[0].column, a[1].column.cast("bigint")
    start = f.when(n == -(1 << 31), f.lit(0)).when(n < 0, -n).otherwise(f.char_length(text).cast("bigint") - n)
    return _part(f, text, start + 1, f.lit(1 << 40))


def position(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.position(a[1].column, a[0].column)


def replace(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.replace(a[0].column, a[1].column, a[2].column)


def starts_with(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.startswith(a[0].column, a[1].column)


def split_part(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    """A negative number counts from the end, from PostgreSQL 14 on."""
    text, delimiter, n = (v.column for v in a)
    known = text.isNotNull() & delimiter.isNotNull() & n.isNotNull()
    refusal = refused(f, "field position must not be zero")
    return f.when(known & (n == 0), refusal).otherwise(f.split_part(text, delimiter, n))


def btrim(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.btrim(a[0].column, _blanks(f, a))


def ltrim(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.ltrim(a[0].column, _blanks(f, a))


def rtrim(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return f.rtrim(a[0].column, _blanks(f, a))


def _blanks(f: Functions, a: Sequence[Value]) -> Column:
    return a[1].column if len(a) > 1 else f.lit(" ")


def lower(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    """Exact for ASCII; under collation C only ASCII letters have a case."""
    return _ascii(f, a[0], f.translate(a[0].column, _UPPER, _LOWER))


def upper(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return _ascii(f, a[0], f.translate(a[0].column, _LOWER, _UPPER))


def _ascii(f: Functions, value: Value, result: Column) -> Column:
    """The case of other letters depends on the Unicode version: unless the collation is C, such a text is refused."""
    if value.type.collation in ONLY_ASCII:
        return result
    outside = inexact(f, "lower and upper of other letters than ASCII's under a collation other than C")
    return f.when(value.column.rlike(r"[^\x00-\x7F]"), outside).otherwise(result)


def like(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    text, pattern = a[0].column, str(a[1].constant)
    inner = pattern.strip("%")
    if inner and not set(inner) & set("%_\\"):
        # Without a regular expression; Spark pushes a prefix down to the scan.
        match (pattern.startswith("%"), pattern.endswith("%")):
            case (True, True):
                return text.contains(f.lit(inner))
            case (False, True):
                return text.startswith(f.lit(inner))
            case (True, False):
                return text.endswith(f.lit(inner))
            case _:
                return text == f.lit(inner)
    return f.rlike(text, f.lit(_regex(pattern)))


def not_like(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return ~like(f, a, _t)


def _regex(pattern: str) -> str:
    """LIKE as a Java regular expression, which may match anywhere in the text. Spark's LIKE refuses an escape before an
    ordinary character."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
            if at == len(pattern):
                raise DefinitionError("LIKE pattern must not end with escape character")
            parts.append(re.escape(pattern[at]))
        else:
            parts.append({"%": _ANYTHING, "_": "."}.get(char, re.escape(char)))
        at += 1
    start = "" if parts[:1] == [_ANYTHING] else r"\A"
    end = "" if parts[-1:] == [_ANYTHING] else r"\z"
    return "(?s)" + start + "".join(parts[not start : len(parts) - (not end)]) + end


def escaped(pattern: str, escape: str) -> str:
    """A LIKE pattern with an ESCAPE character, rewritten to one with a backslash."""
    parts, at = [], 0
    while at < len(pattern):
        if escape and pattern[at] == escape:
            at += 1
            parts.append("\\" + pattern[at : at + 1])
        else:
            parts.append("\\\\" if pattern[at] == "\\" else pattern[at])
        at += 1
    return "".join(parts)


# Casts.


def same(_f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return a[0].column


def to_varchar(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    return a[0].column if t.length is None else f.substring(a[0].column, f.lit(1), f.lit(t.length))


def to_bpchar(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    """Without trailing blanks: the encoded form."""
    return f.rtrim(to_varchar(f, a, t), f.lit(" "))


def from_bool_or_integer(_f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    return a[0].column.cast("string")


def to_integer(f: Functions, a: Sequence[Value], t: PgType) -> Column:
    """Decimal digits only. Other formats depend on PostgreSQL's version (0x1F, 1_000 from 16 on)."""
    text = a[0].column
    plain = text.rlike(r"\A[ \t\n\x0B\f\r]*[+-]?[0-9]+[ \t\n\x0B\f\r]*\z")
    digits = f.regexp_replace(text, f.lit(r"[ \t\n\x0B\f\r]+"), f.lit(""))
    fits = f.char_length(f.regexp_replace(digits, f.lit(r"\A[+-]?0*"), f.lit(""))) <= 19
    edge = 1 << {"int2": 15, "int4": 31, "int8": 63}[t.name]
    number = f.when(plain & fits, digits.cast("decimal(38,0)"))
    inside = (number >= f.lit(-edge).cast("decimal(38,0)")) & (number <= f.lit(edge - 1).cast("decimal(38,0)"))
    special = text.rlike(r"\A\s*[+-]?[0-9][0-9A-Za-z_]*\s*\z")
    return (
        f.when(plain & fits & inside, number.cast(spark_type(t)))
        .when(plain, refused(f, f"value is out of range for type {t.sql_name}"))
        .when(special, inexact(f, "an integer is written in a form that only some versions of PostgreSQL take"))
        .when(text.isNotNull(), refused(f, f"invalid input syntax for type {t.sql_name}"))
    )
