"""Constant folding at compile time, so that Spark compares a column with a literal. Pure.

A condition such as `d <= '1998-12-01'::date - '90 days'::interval` becomes a comparison of integers, which Spark pushes
down to the scan. An expression that would fail, or is outside the years 1 to 9999, is not folded.
"""

from __future__ import annotations

import calendar
import datetime

from pgtrickle.pipeline.expressions.entries import Entry
from pgtrickle.pipeline.expressions.listed import BY_KEY
from pgtrickle.pipeline.expressions.nodes import Call, Constant, Node
from pgtrickle.pipeline.expressions.times import Interval
from pgtrickle.pipeline.expressions.types import DAY, INTEGERS, PgType

_EPOCH = datetime.date(2000, 1, 1)
_FIRST, _AFTER_LAST = (datetime.date.min - _EPOCH).days, (datetime.date.max - _EPOCH).days + 1
_SWAPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# A date compared with a timestamp after midnight is compared with the day of the timestamp.
_WITHIN_DAY = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}


def folded(node: Node) -> Node:
    """The node, or its constant value; its arguments are already folded."""
    if not isinstance(node, Call):
        return node
    entry, types = node.entry, node.entry.arguments
    if entry.kind == "operator" and set(types) == {"date", "timestamp"} and entry.name in _SWAPPED:
        return _of_dates(node)
    values = [a.value if isinstance(a, Constant) else None for a in node.arguments]
    if any(value is None for value in values):
        return node
    if entry.kind == "cast":
        return _cast(node, values[0])
    if entry.kind == "operator" and types == ("timestamp", "interval"):
        assert isinstance(values[0], int)
        assert isinstance(values[1], Interval)
        moved = _moved(values[0], values[1] if entry.name == "+" else -values[1])
        return node if moved is None else Constant(moved, node.type)
    return node


def _cast(node: Call, value: object) -> Node:
    (source,), target = node.entry.arguments, node.type
    if source in INTEGERS and target.name == "numeric" and target.fixed and not target.scale:
        digits = str(value)
        return Constant(digits, PgType("numeric", len(digits.lstrip("-"))))
    if (source, target.name) == ("date", "timestamp") and isinstance(value, int) and _FIRST <= value < _AFTER_LAST:
        return Constant(value * DAY, target)
    return node


def _moved(micros: int, by: Interval) -> int | None:
    """Adds months first (the day is limited to the last day of the month), then days, then time."""
    day, time = divmod(micros, DAY)
    if not _FIRST <= day < _AFTER_LAST:
        return None
    if by.months:
        date = _EPOCH + datetime.timedelta(day)
        year, month = divmod(date.year * 12 + date.month - 1 + by.months, 12)
        if not datetime.MINYEAR <= year <= datetime.MAXYEAR:
            return None
        last = calendar.monthrange(year, month + 1)[1]
        day = (datetime.date(year, month + 1, min(date.day, last)) - _EPOCH).days
    moved = (day + by.days) * DAY + time + by.microseconds
    return moved if _FIRST <= day + by.days < _AFTER_LAST and _FIRST <= moved // DAY < _AFTER_LAST else None


def _of_dates(node: Call) -> Node:
    """The comparison of a date with a constant timestamp, as a comparison of two dates."""
    left, right = node.arguments
    name = node.entry.name
    if isinstance(left, Constant) and left.type.name == "timestamp":
        left, right, name = right, left, _SWAPPED[name]
    if not isinstance(right, Constant) or right.type.name != "timestamp" or not isinstance(right.value, int):
        return node
    day, time = divmod(right.value, DAY)
    if time:
        if name not in _WITHIN_DAY:
            return node
        name = _WITHIN_DAY[name]
    if not _FIRST <= day < _AFTER_LAST:
        return node
    entry: Entry = BY_KEY["operator", name, ("date", "date"), None]
    return Call(entry, (left, Constant(day, PgType("date"))), node.type)
