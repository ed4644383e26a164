"""Dates and timestamps as texts: to_char, and casts under DateStyle ISO (timestamptz: under TimeZone UTC)."""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.pipeline.expressions.times import calendar, date_to_timestamp, day_of, is_infinite, time_of_day, year_of
from pgtrickle.pipeline.expressions.types import Column, Functions, PgType
from pgtrickle.pipeline.expressions.values import Build, Value

DATE_FORMATS = ("YYYY-MM-DD", "YYYY-MM", "MM-DD", "YYYY", "MM", "DD", "YYYYMMDD", "YYYYMM")
TIME_FORMATS = ("YYYY-MM-DD HH24:MI:SS", "YYYY-MM-DD HH24:MI", "YYYY-MM-DD HH24", "HH24:MI:SS", "HH24:MI", "HH24", "MI")
FORMATS = (*DATE_FORMATS, *TIME_FORMATS)
_UNITS = {"HH24": 3_600_000_000, "MI": 60_000_000, "SS": 1_000_000}
_PARTS = ("YYYY", "MM", "DD", *_UNITS)


def formatted(format_: str) -> Build:
    """to_char. Infinity is NULL; years have at least four digits, and years BC have no sign."""

    def build(f: Functions, a: Sequence[Value], t: PgType) -> Column:
        x, is_date = a[0].column, a[0].type.name == "date"
        days = x.cast("bigint") if is_date else day_of(f, x)
        parts: list[Column] = []
        rest = format_
        while rest:
            part = next((p for p in _PARTS if rest.startswith(p)), rest[0])
            parts.append(_shown(f, part, days, None if is_date else x))
            rest = rest[len(part) :]
        text = f.concat(*parts)
        if is_date:  # cast to timestamp first, which has a smaller range
            text = f.when(date_to_timestamp(f, a, t).isNotNull(), text)
        return f.when(~is_infinite(x, a[0].type.name), text)

    return build


def _shown(f: Functions, part: str, days: Column, micros: Column | None) -> Column:
    if part in _UNITS:
        assert micros is not None
        return _two_digits(f, _unit(f, time_of_day(f, micros), part))
    match part:
        case "YYYY":
            year = f.abs(year_of(f, days)).cast("string")
            return f.lpad(year, f.greatest(f.length(year), f.lit(4)), f.lit("0"))
        case "MM":
            return _two_digits(f, f.month(calendar(f, days)))
        case "DD":
            return _two_digits(f, f.dayofmonth(calendar(f, days)))
    return f.lit(part)


def _two_digits(f: Functions, number: Column) -> Column:
    return f.lpad(number.cast("string"), 2, "0")


def _unit(f: Functions, micros: Column, part: str) -> Column:
    whole = f.call_function("div", micros, f.lit(_UNITS[part]))
    return whole if part == "HH24" else f.pmod(whole, f.lit(60))


def date_text(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    x = a[0].column
    days = x.cast("bigint")
    return _or_infinity(f, a[0], f.concat(_day_text(f, days), _era(f, days)))


def timestamp_text(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    """2024-02-29 12:34:56.789+00 BC: without trailing zeros of the fraction."""
    x = a[0].column
    days, time = day_of(f, x), time_of_day(f, x)
    clock = f.concat_ws(":", *(_shown(f, part, days, x) for part in _UNITS))
    micros = f.lpad(f.pmod(time, f.lit(1_000_000)).cast("string"), 6, "0")
    fraction = f.when(micros == "000000", f.lit("")).otherwise(f.concat(f.lit("."), f.rtrim(micros, f.lit("0"))))
    zone = f.lit("+00" if a[0].type.name == "timestamptz" else "")
    return _or_infinity(f, a[0], f.concat(_day_text(f, days), f.lit(" "), clock, fraction, zone, _era(f, days)))


def _day_text(f: Functions, days: Column) -> Column:
    return f.concat_ws("-", *(_shown(f, part, days, None) for part in ("YYYY", "MM", "DD")))


def _era(f: Functions, days: Column) -> Column:
    return f.when(year_of(f, days) < 0, f.lit(" BC")).otherwise(f.lit(""))


def _or_infinity(f: Functions, value: Value, text: Column) -> Column:
    x = value.column
    infinity = f.when(x > 0, f.lit("infinity")).otherwise(f.lit("-infinity"))
    return f.when(is_infinite(x, value.type.name), infinity).when(x.isNotNull(), text)
