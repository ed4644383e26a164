"""Tables and lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol


class Verified(Protocol):
    """What is shown of a verification; the runtime's result has these."""

    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def missing(self) -> int: ...
    @property
    def extra(self) -> int: ...
    @property
    def cut(self) -> str: ...
    @property
    def waited(self) -> bool | float: ...
    @property
    def mode(self) -> str: ...


def verify_lines(results: Sequence[Verified]) -> Iterator[str]:
    for result in results:
        if result.ok:
            yield f"ok         {result.name} ({result.mode})"
        else:
            yield f"DIFFERENT  {result.name} ({result.mode}): {result.missing} rows missing, {result.extra} too many"
    good = sum(result.ok for result in results)
    yield f"{good} of {len(results)} stream tables equal their query as PostgreSQL evaluates it"


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return str(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    Console().print(table)
