"""Constants that are known when a query is compiled. What PostgreSQL answers is compared in tests/spark."""

from __future__ import annotations

import pytest
import sqlglot

from pgtrickle.pipeline.expressions.nodes import Call, Constant, Node, Reference
from pgtrickle.pipeline.expressions.resolve import resolve
from pgtrickle.pipeline.expressions.types import PgType, numeric

COLUMNS = {"d": PgType("date"), "ts": PgType("timestamp"), "n": numeric(15, 2), "i": PgType("int4")}


def resolved(sql: str) -> Node:
    return resolve(sqlglot.parse_one(sql, read="postgres"), lambda _table, name: (name, COLUMNS[name]))


def shown(node: Node) -> object:
    match node:
        case Reference():
            return node.name
        case Constant():
            return node.value
        case Call():
            return (node.entry.name, *(shown(a) for a in node.arguments))


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("d <= '2000-02-01'::date - '1 day'::interval", ("<=", "d", 30)),
        ("d < '2000-01-31'::date + '1 mon'::interval", ("<", "d", 59)),  # the last day of February
        ("d < '2000-01-01 12:00:00'::timestamp without time zone", ("<=", "d", 0)),
        ("d >= '2000-01-01 12:00:00'::timestamp without time zone", (">", "d", 0)),
        ("'1999-12-31 12:00:00'::timestamp without time zone > d", ("<=", "d", -1)),
        ("'2000-01-02 00:00:00'::timestamp without time zone = d", ("=", "d", 1)),
        # It may be NULL, so it is not simply false.
        ("d = '2000-01-01 12:00:00'::timestamp without time zone", ("=", "d", 43_200_000_000)),
        ("ts > '2000-01-01'::date + '02:00:00'::interval", (">", "ts", 7_200_000_000)),
        ("n * (1 - n)", ("*", "n", ("-", "1", "n"))),
        ("n > i + 1", (">", "n", ("cast", ("+", "i", 1)))),
    ],
)
def test_constants_are_folded(sql: str, wanted: object) -> None:
    assert shown(resolved(sql)) == wanted


def test_what_leaves_the_calendar_of_python_is_left_to_spark() -> None:
    found = resolved("ts > '0001-01-31'::date - '1 mon'::interval")
    assert isinstance(found, Call)
    assert isinstance(found.arguments[1], Call)
