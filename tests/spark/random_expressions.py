"""Random well-typed expressions made of the allow-list's entries, nested, over one row of columns of all types."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgtrickle.errors import DefinitionError
from pgtrickle.pipeline.expressions.entries import Entry
from pgtrickle.pipeline.expressions.listed import ENTRIES
from pgtrickle.pipeline.expressions.types import NUMERIC, PgType, numeric
from tests.spark.conformance import Case, texts_of
from tests.spark.edges import Kind

_C = 'text COLLATE "C"'
COLUMNS: dict[str, Kind] = {
    "b1": Kind(PgType("bool"), "bool", ("t", "f", "t")),
    "s1": Kind(PgType("int2"), "int2", ("0", "-3", "32767")),
    "i1": Kind(PgType("int4"), "int4", ("1", "-2147483648", "7")),
    "i2": Kind(PgType("int4"), "int4", ("0", "3", "-2")),
    "l1": Kind(PgType("int8"), "int8", ("5", "-9007199254740993", "0")),
    "n1": Kind(NUMERIC, "numeric", ("1.50", "-0.001", "0.0")),
    "n2": Kind(numeric(10, 2), "numeric(10,2)", ("2.50", "-99.99", "0")),
    "r1": Kind(PgType("float4"), "float4", ("0.1", "-0", "NaN")),
    "f1": Kind(PgType("float8"), "float8", ("0.1", "-2.5", "Infinity")),
    "f2": Kind(PgType("float8"), "float8", ("3", "NaN", "-0")),
    "t1": Kind(PgType("text", collation="C"), _C, ("ab ", "\U0001f600x", "")),
    "t2": Kind(PgType("text", collation="C"), _C, ("b", "12", "a\u0308")),
    "c1": Kind(PgType("bpchar", length=4, collation="C"), 'char(4) COLLATE "C"', ("ab", "", "x y")),
    "d1": Kind(PgType("date"), "date", ("2024-02-29", "infinity", "0001-01-01 BC")),
    "m1": Kind(PgType("timestamp"), "timestamp", ("2024-01-31 12:00:00.5", "-infinity", "1999-12-31 23:59:59")),
    "u1": Kind(PgType("uuid"), "uuid", ("00000000-0000-0000-0000-000000000001",) * 3),
    "y1": Kind(PgType("bytea"), "bytea", ("\\x00", "\\x", "\\xff")),
}
_CONSTANTS = {
    "bool": ("true", "false"),
    "int4": ("0", "1", "2", "'-1'::integer", "100"),
    "int8": ("4294967296", "'3'::bigint"),
    "numeric": ("0.5", "1.00", "3.0", "10.25"),
    "float8": ("'0.5'::double precision", "'-0'::double precision"),
    "text": ("''::text", "'a'::text", "'b '::text"),
    "date": ("'2000-03-01'::date",),
    "timestamp": ("'2000-02-29 00:00:00'::timestamp without time zone",),
}


def _rows() -> list[Sequence[str | None]]:
    """The three rows, each also with every second column NULL."""
    kinds = list(COLUMNS.values())
    rows: list[Sequence[str | None]] = [[kind.values[i] for kind in kinds] for i in range(3)]
    for shift in (0, 1):
        rows += [[v if i % 2 == shift else None for i, v in enumerate(row)] for row in rows[:3]]
    return rows


ROWS = _rows()
_TYPES = ("bool", "int2", "int4", "int8", "numeric", "float4", "float8", "text", "date", "timestamp")
_BY_RESULT = {
    name: [e for e in ENTRIES if e.result == name and not set(e.arguments) & {"opaque", "varchar", "timestamptz"}]
    for name in _TYPES
}


class Expressions:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def case(self) -> Case:
        while True:
            sql = self.sql(self.rng.choice(_TYPES), 3)
            case = Case(sql, (), columns=tuple(COLUMNS.items()))
            try:
                case.node()
            except DefinitionError:  # too many digits, or a collation that nothing decides
                continue
            return case

    def sql(self, type_: str, depth: int) -> str:
        if depth == 0 or type_ not in _BY_RESULT:
            return self.leaf(type_)
        entries = [e for e in _BY_RESULT[type_] if _has_leaves(e)]
        return self.call(self.rng.choice(entries), depth - 1) if entries else self.leaf(type_)

    def call(self, entry: Entry, depth: int) -> str:
        text = self.rng.choice(list(texts_of(entry)))
        arguments = [n for p, n in enumerate(entry.arguments) if p not in entry.constants]
        for letter, name in zip("abc", arguments, strict=False):
            text = text.replace(f"\x02{letter}\x03", self.sql(name, self.rng.choice((0, depth, depth))))
        return text if text.startswith("(") else f"({text})"

    def leaf(self, type_: str) -> str:
        if self.rng.random() < 0.25 and type_ in _CONSTANTS:
            return self.rng.choice(_CONSTANTS[type_])
        names = [name for name, kind in COLUMNS.items() if kind.type.name == type_]
        return self.rng.choice(names or _CONSTANTS[type_])


def _has_leaves(entry: Entry) -> bool:
    """Whether there is a column or a constant for each argument."""
    known = {kind.type.name for kind in COLUMNS.values()} | set(_CONSTANTS)
    return all(name in known for p, name in enumerate(entry.arguments) if p not in entry.constants)
