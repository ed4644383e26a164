"""Where a refresh writes: the stream table, its state beside it, and how values are cast back to their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgtrickle.model.catalog import Column


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def escape(sql: str) -> str:
    """SQL text with no parameters of its own, made safe to stand in a statement that has some."""
    return sql.replace("%", "%%")


@dataclass(frozen=True, slots=True)
class Target:
    """A stream table's storage. `carriers` tell how each column travels (long, bool, string)."""

    pgt_id: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    carriers: tuple[str, ...]

    @property
    def table(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def state(self) -> str:
        return f'"pgtrickle_changes"."state_{self.pgt_id}"'

    def column_list(self) -> str:
        return ", ".join([*(quote(c.name) for c in self.columns), '"__pgt_row_id"'])

    def typed(self, alias: str) -> str:
        """The delta's columns, cast back."""
        return ", ".join(f"{alias}.c{i}::{c.type}" for i, c in enumerate(self.columns))

    def same(self, table: str, delta: str) -> str:
        """Exact identity of a stored row and a carried one, byte by byte.

        Finer than equality, so never the wrong row.
        """
        tests = [
            f"{carried(f'{table}.{quote(c.name)}', carrier)} IS NOT DISTINCT FROM {delta}.c{i}"
            for i, (c, carrier) in enumerate(zip(self.columns, self.carriers, strict=True))
        ]
        return " AND ".join(tests) or "true"


def carried(sql: str, carrier: str) -> str:
    """A stored value in the form in which it travels."""
    return {"long": f"{sql}::int8", "bool": f"{sql}::bool"}.get(carrier, f'{sql}::text COLLATE "C"')


def array_type(carrier: str) -> str:
    return {"long": "int8[]", "bool": "bool[]"}.get(carrier, "text[]")


def column_type(carrier: str) -> str:
    return {"long": "int8", "bool": "bool"}.get(carrier, "text")


def unnest(names: Sequence[str], carriers: Sequence[str]) -> str:
    """A delta that travels as one array parameter per column."""
    arrays = ", ".join(f"%s::{array_type(c)}" for c in carriers)
    return f"unnest({arrays}) AS d({', '.join(names)})"
