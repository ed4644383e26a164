"""Filters of Spark as conditions of PostgreSQL.

Spark evaluates every filter again, so a condition may let rows pass that its filter refuses, and never the other way.
Texts are compared by code point, as Spark does; what has no such condition is left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pgtrickle.model.identifiers import quote_ident, quote_literal
from pgtrickle.pipeline.datasource.columns import STRING, SparkColumn

_COMPARED = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_TEXTS = (25, 1043)  # text and varchar: others show a text that is not their value
_INTEGERS = ("smallint", "int", "bigint")


def conditions(filters: Iterable[Any], columns: Sequence[SparkColumn], alias: str) -> list[str]:
    """SQL conditions that follow from the filters."""
    known = {column.name: column for column in columns}
    found = (_condition(each, known, alias) for each in filters)
    return [condition for condition in found if condition is not None]


def _condition(each: Any, known: dict[str, SparkColumn], alias: str) -> str | None:
    kind = type(each).__name__
    path: tuple[str, ...] = getattr(each, "attribute", ())
    column = known.get(path[0]) if len(path) == 1 else None
    if column is None:
        return None
    sql = f"{alias}.{quote_ident(column.name)}"
    if kind in ("IsNull", "IsNotNull"):
        nulls = "= 1" if kind == "IsNull" else "= 0"
        return f"pg_catalog.num_nulls({sql}) {nulls}"  # IS NULL also holds for a row of NULLs
    if kind == "In":
        literals = [_literal(column, value) for value in each.value if value is not None]
        if not literals or any(literal is None for literal in literals):
            return None
        return f"{sql} IN ({', '.join(literal for literal in literals if literal is not None)})"
    literal = _literal(column, each.value) if kind in _COMPARED else None
    if literal is None:
        return None
    if column.spark == STRING and _COMPARED[kind] != "=":
        return f'{sql} COLLATE "C" {_COMPARED[kind]} {literal}'
    return f"{sql} {_COMPARED[kind]} {literal}"


def _literal(column: SparkColumn, value: object) -> str | None:
    """None: there is none by which PostgreSQL compares as Spark does."""
    if isinstance(value, bool):
        return str(value).lower() if column.spark == "boolean" else None
    if isinstance(value, int) and column.spark in _INTEGERS and -(2**63) <= value < 2**63:
        return f"'{value}'::bigint"
    if isinstance(value, Decimal) and column.spark.startswith("decimal"):
        return f"'{value:f}'::numeric"
    if isinstance(value, date) and not isinstance(value, datetime) and column.spark == "date":
        return f"'{value.isoformat()}'::date"
    if isinstance(value, str) and column.spark == STRING and column.type.base in _TEXTS and "\x00" not in value:
        return quote_literal(value)
    return None
