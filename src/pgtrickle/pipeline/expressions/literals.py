"""Constants: from the text that PostgreSQL prints to the encoded form of their type (see `types`).

Only the formats that pg_get_viewdef prints under DateStyle ISO and IntervalStyle postgres are parsed; all others are
refused, so that none is misinterpreted.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import replace

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.times import Interval
from pgtrickle.pipeline.expressions.types import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    DAY,
    INFINITY,
    MINUS_INFINITY,
    PgType,
)

_NUMERIC = re.compile(r"\s*([+-]?)(\d+)(?:\.(\d*))?\s*\Z", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)\Z", re.ASCII)
_TIME = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
_TIMESTAMP = re.compile(rf"(\d{{4}}-\d\d-\d\d) {_TIME}\Z", re.ASCII)
_TIMESTAMPTZ = re.compile(rf"(\d{{4}}-\d\d-\d\d) {_TIME}([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?\Z", re.ASCII)
_PART = re.compile(r"([+-]?\d+) (years?|mons?|days?)\s*", re.ASCII)
_SPAN = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?\Z", re.ASCII)
_MONTHS = {"year": 12, "mon": 1}
_BOOLS = {"t": True, "true": True, "f": False, "false": False}
_RANGES = {"int2": 1 << 15, "int4": 1 << 31, "int8": 1 << 63}


def constant(text: str, type_: PgType) -> tuple[object, PgType]:
    """The value of `'text'::type` and its type; for a numeric with its precision and scale."""
    value = _value(text, type_)
    if value is None:
        raise SparkUnsupportedError(f"the constant '{text}' of type {type_.sql_name}")
    if type_.name != "numeric" or type_.fixed:
        return value, type_
    whole, _, fraction = str(value).lstrip("-").partition(".")
    return value, replace(type_, whole=len(whole), scale=len(fraction), fixed=True)


def _value(text: str, type_: PgType) -> object:
    match type_.name:
        case "text" | "opaque" | "uuid" | "jsonb":
            return _uuid(text) if type_.name == "uuid" else text
        case "varchar":
            return text if type_.length is None else text[: type_.length]
        case "bpchar":
            return text[: type_.length].rstrip(" ")
        case "bool":
            return _BOOLS.get(text)
        case "int2" | "int4" | "int8":
            return _integer(text, _RANGES[type_.name])
        case "numeric":
            return (
                _numeric(text) if not type_.fixed else None
            )  # PostgreSQL prints no constant with a typmod, which would round
        case "float4" | "float8":
            return _float(text)
        case "bytea":
            return text[2:].lower() if re.match(r"\\x([0-9a-fA-F]{2})*\Z", text) else None
        case "date":
            return {"infinity": DATE_INFINITY, "-infinity": DATE_MINUS_INFINITY}.get(text, _date(text))
        case "timestamp" | "timestamptz":
            return {"infinity": INFINITY, "-infinity": MINUS_INFINITY}.get(text, _timestamp(text, type_.name))
        case "interval":
            return _interval(text)
    return None


def _uuid(text: str) -> str | None:
    return text.lower() if re.match(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z", text) else None


def _integer(text: str, edge: int) -> int | None:
    if not re.match(r"[+-]?\d+\Z", text, re.ASCII) or not -edge <= int(text) < edge:
        return None
    return int(text)


def _numeric(text: str) -> str | None:
    """The numeric with its display scale; -0 becomes 0."""
    match = _NUMERIC.match(text)
    if match is None:
        return None
    sign, whole, fraction = match.groups()
    whole = whole.lstrip("0") or "0"
    if len(whole) + len(fraction or "") > 38:
        return None
    number = f"{whole}.{fraction}" if fraction else whole
    return f"-{number}" if sign == "-" and number.strip("0.") else number


def _float(text: str) -> float | None:
    if text in ("NaN", "Infinity", "-Infinity") or re.match(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?\Z", text, re.I | re.ASCII):
        return float(text)
    return None


def _date(text: str) -> int | None:
    if not _DATE.match(text):
        return None
    try:
        return (datetime.date.fromisoformat(text) - datetime.date(2000, 1, 1)).days
    except ValueError:
        return None


def _microseconds(hours: str, minutes: str, seconds: str, fraction: str | None) -> int:
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))


def _timestamp(text: str, type_name: str) -> int | None:
    match = (_TIMESTAMP if type_name == "timestamp" else _TIMESTAMPTZ).match(text)
    day = _date(match[1]) if match is not None else None
    if match is None or day is None or int(match[2]) > 23 or int(match[3]) > 59 or int(match[4]) > 59:
        return None
    local = day * DAY + _microseconds(match[2], match[3], match[4], match[5])
    if type_name == "timestamp":
        return local
    offset = _microseconds(match[7], match[8] or "0", match[9] or "0", None)
    return local - offset if match[6] == "+" else local + offset


def _interval(text: str) -> Interval | None:
    months = days = at = 0
    while (part := _PART.match(text, at)) is not None:
        unit = part[2].removesuffix("s")
        if unit == "day":
            days += int(part[1])
        else:
            months += int(part[1]) * _MONTHS[unit]
        at = part.end()
    if at == len(text):
        return Interval(months, days, 0) if at else None
    span = _SPAN.match(text, at)
    if span is None:
        return None
    time = _microseconds(span[2], span[3], span[4], span[5])
    return Interval(months, days, -time if span[1] == "-" else time)
