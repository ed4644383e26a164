"""Dates as days and timestamps as microseconds since 2000-01-01, as PostgreSQL stores them, with integer arithmetic.

The calendar is Spark's (java.time, proleptic Gregorian like PostgreSQL's), over the full range of days; only the
numbers of years BC differ, since SQL has no year 0. Nothing here depends on a time zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgtrickle.pipeline.expressions.failures import inexact, refused
from pgtrickle.pipeline.expressions.types import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    DAY,
    INFINITY,
    MINUS_INFINITY,
    Column,
    Functions,
    PgType,
)
from pgtrickle.pipeline.expressions.values import Build, Value

_FIRST_DATE, _AFTER_LAST_DATE = -2451545, 2145031949
_FIRST, _AFTER_LAST = -211_813_488_000_000_000, 9_223_371_331_200_000_000
_EPOCH = 10_957  # days from 1970 to 2000
_EPOCH_OVERFLOWS = INFINITY - _EPOCH * DAY  # from here on microseconds since 1970 overflow a bigint


@dataclass(frozen=True, slots=True)
class Interval:
    months: int
    days: int
    microseconds: int

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.days, -self.microseconds)


def is_infinite(x: Column, type_name: str) -> Column:
    low, high = (DATE_MINUS_INFINITY, DATE_INFINITY) if type_name == "date" else (MINUS_INFINITY, INFINITY)
    return (x == high) | (x == low)


def _checked_date(f: Functions, days: Column) -> Column:
    outside = (days < _FIRST_DATE) | (days >= _AFTER_LAST_DATE)
    return f.when(outside, refused(f, "date out of range")).otherwise(days.cast("int"))


def checked_timestamp(f: Functions, micros: Column) -> Column:
    """`micros` is a decimal, so that intermediate results do not overflow."""
    outside = (micros < f.lit(_FIRST)) | (micros >= f.lit(_AFTER_LAST))
    return f.when(outside, refused(f, "timestamp out of range")).otherwise(micros.cast("bigint"))


def days_as_micros(f: Functions, days: Column) -> Column:
    return days.cast("decimal(12,0)") * f.lit(DAY).cast("decimal(12,0)")


def day_of(f: Functions, micros: Column) -> Column:
    """The day of a timestamp, rounded down."""
    return f.call_function("div", micros - time_of_day(f, micros), f.lit(DAY))


def time_of_day(f: Functions, micros: Column) -> Column:
    return f.pmod(micros, f.lit(DAY))


def calendar(f: Functions, days: Column) -> Column:
    """A Spark date, used for calendar functions only."""
    return f.date_from_unix_date((days + _EPOCH).cast("int"))


def date_plus(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    date, days = (a[0], a[1]) if a[0].type.name == "date" else (a[1], a[0])
    moved = date.column.cast("bigint") + days.column.cast("bigint")
    return f.when(is_infinite(date.column, "date") & days.column.isNotNull(), date.column).otherwise(
        _checked_date(f, moved)
    )


def date_minus(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    moved = a[0].column.cast("bigint") - a[1].column.cast("bigint")
    return f.when(is_infinite(a[0].column, "date") & a[1].column.isNotNull(), a[0].column).otherwise(
        _checked_date(f, moved)
    )


def date_difference(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    endless = (is_infinite(a[0].column, "date") | is_infinite(a[1].column, "date")) & (
        a[0].column + 0 * a[1].column
    ).isNotNull()
    return f.when(endless, refused(f, "cannot subtract infinite dates")).otherwise(
        (a[0].column.cast("bigint") - a[1].column.cast("bigint")).cast("int")
    )


def date_to_timestamp(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    x = a[0].column
    return (
        f.when(x == DATE_INFINITY, f.lit(INFINITY))
        .when(x == DATE_MINUS_INFINITY, f.lit(MINUS_INFINITY))
        .otherwise(checked_timestamp(f, days_as_micros(f, x)))
    )


def timestamp_to_date(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    x = a[0].column
    return (
        f.when(x == INFINITY, f.lit(DATE_INFINITY))
        .when(x == MINUS_INFINITY, f.lit(DATE_MINUS_INFINITY))
        .otherwise(day_of(f, x).cast("int"))
    )


def comparable(f: Functions, value: Value) -> Column:
    """A number that orders dates and timestamps together; a date may be outside the range of timestamps."""
    x = value.column
    beyond = 10**25
    if value.type.name == "date":
        micros = days_as_micros(f, x)
        high, low = DATE_INFINITY, DATE_MINUS_INFINITY
    else:
        micros, high, low = x, INFINITY, MINUS_INFINITY
    wide = "decimal(38,0)"
    return (
        f.when(x == high, f.lit(str(beyond)).cast(wide))
        .when(x == low, f.lit(str(-beyond)).cast(wide))
        .otherwise(micros.cast(wide))
    )


def plus_interval(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    """Adds months first (the day is limited to the last day of the month), then days, then time."""
    time, interval = a[0], a[1].constant
    assert isinstance(interval, Interval)
    return _moved(f, time, interval)


def minus_interval(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    interval = a[1].constant
    assert isinstance(interval, Interval)
    return _moved(f, a[0], -interval)


def _moved(f: Functions, time: Value, by: Interval) -> Column:
    x = time.column
    wide = "decimal(20,0)"
    if not by.months:
        moved = _checked_after(f, x.cast(wide), by)
    else:
        # As in PostgreSQL: the result of adding months must be in range before days are added.
        day = f.unix_date(f.add_months(calendar(f, day_of(f, x)), by.months)) - f.lit(_EPOCH)
        start = day.cast(wide) * f.lit(DAY).cast(wide) + time_of_day(f, x)
        moved = _checked_after(
            f, checked_timestamp(f, start.cast(wide)).cast(wide), Interval(0, by.days, by.microseconds)
        )
    return f.when(is_infinite(x, time.type.name), x).otherwise(moved)


def _checked_after(f: Functions, micros: Column, by: Interval) -> Column:
    """Adds days, then time; each result must be in the range of timestamps."""
    if by.days:
        micros = checked_timestamp(f, micros + f.lit(by.days * DAY).cast("decimal(20,0)")).cast("decimal(20,0)")
    return checked_timestamp(f, micros + f.lit(by.microseconds).cast("decimal(20,0)"))


# Fields: those of the calendar, which a date has, too, and those of the time of day, from its microseconds.


def year_of(f: Functions, days: Column) -> Column:
    year = f.year(calendar(f, days)).cast("bigint")
    return f.when(year > 0, year).otherwise(year - 1)


def _iso_year(f: Functions, days: Column) -> Column:
    """The year of the Thursday of the week."""
    return year_of(f, days - f.pmod(days + 5, f.lit(7)) + 3)


def _century(f: Functions, year: Column, years: int) -> Column:
    up = f.call_function("div", year + years - 1, f.lit(years))
    return f.when(year > 0, up).otherwise(-f.call_function("div", f.lit(years - 1) - year, f.lit(years)))


def _decade(f: Functions, days: Column) -> Column:
    year = f.year(calendar(f, days)).cast("bigint")
    return f.call_function("div", year - f.pmod(year, f.lit(10)), f.lit(10))


# name -> (function of days, whether it is monotone: then the field of infinity is infinite, else NULL)
_OF_DAY = {
    "year": (year_of, True),
    "isoyear": (_iso_year, True),
    "decade": (_decade, True),
    "century": (lambda f, d: _century(f, year_of(f, d), 100), True),
    "millennium": (lambda f, d: _century(f, year_of(f, d), 1000), True),
    "julian": (lambda _f, d: d + 2451545, True),
    "quarter": (lambda f, d: f.quarter(calendar(f, d)), False),
    "month": (lambda f, d: f.month(calendar(f, d)), False),
    "week": (lambda f, d: f.weekofyear(calendar(f, d)), False),
    "day": (lambda f, d: f.dayofmonth(calendar(f, d)), False),
    "doy": (lambda f, d: f.dayofyear(calendar(f, d)), False),
    "dow": (lambda f, d: f.pmod(d + 6, f.lit(7)), False),
    "isodow": (lambda f, d: f.pmod(d + 5, f.lit(7)) + 1, False),
}
# name -> (unit in microseconds, modulus in units); name -> digits after the point
_OF_TIME = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60)}
_SECONDS = {"second": 6, "milliseconds": 3, "microseconds": 0}

DATE_FIELDS = (*_OF_DAY, "epoch")
TIMESTAMP_FIELDS = (*(n for n in _OF_DAY if n != "julian"), *_OF_TIME, *_SECONDS, "epoch")


def field_scale(field: str, type_name: str) -> int:
    """Digits after the point of EXTRACT's numeric."""
    if field == "epoch" and type_name != "date":
        return 6
    return _SECONDS.get(field, 0)


def field(name: str, *, as_float: bool) -> Build:
    """EXTRACT (numeric) or date_part (double precision)."""

    def build(f: Functions, a: Sequence[Value], t: PgType) -> Column:
        x, type_name = a[0].column, a[0].type.name
        endless = is_infinite(x, type_name)
        finite = _float_field(f, name, x) if as_float else _field(f, name, x, type_name).cast(t.decimal)
        if name != "epoch" and not _OF_DAY.get(name, (None, False))[1]:
            return f.when(~endless, finite)
        if as_float:
            return f.when(endless, f.when(x > 0, f.lit(float("inf"))).otherwise(f.lit(float("-inf")))).otherwise(finite)
        return f.when(endless, inexact(f, f"the {name} of infinity is no number")).otherwise(finite)

    return build


def _field(f: Functions, name: str, x: Column, type_name: str) -> Column:
    if name == "epoch" and type_name == "date":
        return (x.cast("bigint") + _EPOCH) * 86_400
    if name == "epoch":
        seconds = _fraction(f, x.cast("decimal(20,0)") + f.lit(_EPOCH * DAY).cast("decimal(20,0)"), 6)
        # PostgreSQL divides numerics here, with four fraction digits for numbers of this size.
        return f.when(x >= _EPOCH_OVERFLOWS, f.round(seconds, 4).cast("decimal(28,6)")).otherwise(seconds)
    if name in _SECONDS:
        return _fraction(f, f.pmod(x, f.lit(60_000_000)), _SECONDS[name])
    if name in _OF_TIME:
        unit, modulus = _OF_TIME[name]
        return f.call_function("div", f.pmod(x, f.lit(unit * modulus)), f.lit(unit))
    return _OF_DAY[name][0](f, x.cast("bigint") if type_name == "date" else day_of(f, x))


def _float_field(f: Functions, name: str, x: Column) -> Column:
    """date_part of a timestamp; a fraction is computed in PostgreSQL's steps, because each step rounds."""
    if name == "epoch":
        shift = _EPOCH * DAY
        exact = (x + f.when(x < _EPOCH_OVERFLOWS, f.lit(shift)).otherwise(f.lit(0))).cast("double") / 1_000_000.0
        return f.when(x < _EPOCH_OVERFLOWS, exact).otherwise((x.cast("double") + float(shift)) / 1_000_000.0)
    if name not in _SECONDS:
        return _field(f, name, x, "timestamp").cast("double")
    rest = f.pmod(x, f.lit(60_000_000))
    second, fraction = f.call_function("div", rest, f.lit(1_000_000)).cast("double"), f.pmod(x, f.lit(1_000_000))
    unit = {"second": 1.0, "milliseconds": 1000.0, "microseconds": 1_000_000.0}[name]
    return second * unit + fraction.cast("double") / (1_000_000.0 / unit)


def _fraction(f: Functions, micros: Column, digits: int) -> Column:
    """Microseconds divided by 10^digits."""
    wide = micros.cast("decimal(20,0)")
    return wide if not digits else wide * f.lit("0." + "0" * (digits - 1) + "1").cast(f"decimal({digits + 1},{digits})")


# date_trunc

_TRUNC_TIME = {"microseconds": 1, "milliseconds": 1000, "second": 1_000_000, "minute": 60_000_000}
_TRUNC_TIME |= {"hour": 3_600_000_000, "day": DAY}
_TRUNC_DAY = ("week", "month", "quarter", "year")
TRUNC_UNITS = (*_TRUNC_TIME, *_TRUNC_DAY)


def truncated(unit: str) -> Build:
    def build(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
        x = a[0].column
        if unit in _TRUNC_TIME:
            finite = x - f.pmod(x, f.lit(_TRUNC_TIME[unit]))
        elif unit == "week":
            day = day_of(f, x)
            finite = checked_timestamp(f, days_as_micros(f, day - f.pmod(day + 5, f.lit(7))))
        else:
            first = f.trunc(calendar(f, day_of(f, x)), unit)
            finite = checked_timestamp(f, days_as_micros(f, f.unix_date(first) - f.lit(_EPOCH)))
        return f.when(is_infinite(x, a[0].type.name), x).otherwise(finite)

    return build
