"""Lists as array parameters, written as PostgreSQL reads them.

The driver searches each list for the narrowest type, which takes several microseconds per value; a wave sends tens
of thousands. We send no type: each of our statements casts its arrays. A statement is therefore also the same to the
server whatever the values are, and is prepared once, not once for each width of its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from psycopg.adapt import Dumper

from pgtrickle.errors import InvariantError

_PLAIN = (int, float, Decimal)


def literal(values: Sequence[Any]) -> str:
    """The text of an array of plain values; None is NULL."""
    kinds = set(map(type, values))
    if kinds == {str}:
        # All values at once, separated by a character that PostgreSQL's texts do not contain; otherwise one by one.
        text = "\x00".join(values)
        if text.count("\x00") == len(values) - 1:
            if "\\" in text or '"' in text:
                text = text.replace("\\", "\\\\").replace('"', '\\"')
            quoted = text.replace("\x00", '","')
            return f'{{"{quoted}"}}'
    if kinds == {int}:
        return f"{{{','.join(map(str, values))}}}"
    return f"{{{','.join([_element(v) for v in values])}}}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if type(value) is str:
        if "\\" in value or '"' in value:
            value = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{value}"'
    if type(value) is bool:
        return "t" if value else "f"
    if isinstance(value, _PLAIN):
        return str(value)
    if isinstance(value, datetime):
        return f'"{value.isoformat()}"'
    raise InvariantError(f"a value of type {type(value).__name__} in an array parameter")


class ListDumper(Dumper):
    """In place of the driver's."""

    oid = 0  # the server infers it

    def dump(self, obj: Sequence[Any]) -> bytes:
        return literal(obj).encode()
