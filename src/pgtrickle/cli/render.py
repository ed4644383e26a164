"""Tables and lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return str(value)


def plan_lines(plan: Mapping[str, Any], *, statements: bool) -> Iterator[str]:
    """A plan in words: the tree, what runs where, what would force FULL."""
    yield f"Mode: {plan['mode']}"
    if plan["mode"] == "FULL":
        yield f"Reason: {plan['reason']}"
        yield "Every refresh evaluates the whole query in PostgreSQL and applies the difference."
    else:
        yield "Operators, and what a refresh does for each:"
        yield from (f"  {line}" for line in plan["tree"])
        yield f"In Spark: {plan['spark']}"
        yield "In PostgreSQL: everything else, in the statements that read changes and in the apply"
        yield "FULL instead, when:"
        yield from (f"  {reason}" for reason in plan["full_when"])
    if statements:
        yield "Statements:"
        yield from (f"  {sql};" for sql in plan["leaves"])


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    Console().print(table)
