"""Which expressions over a row a replica may store. Pure.

A stored expression is evaluated for every row of a table, also for those that a query filters out, and a replica is
shared by all stream tables that read the table. So it must not fail for any row, must not depend on the session, and
must call nothing but functions of pg_catalog. These lists contain what is known to fulfil this: immutable, strict
functions and operators that take one value of the row and constants. Operators of `json` are not among them: they fail
for escapes that `json` accepts as text. What can fail because of its constants (a wrong pattern) has to be evaluated
once for a sample (`sample`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgtrickle.errors import DefinitionError
from pgtrickle.pipeline.text.tokens import Cursor

TEXT, JSONB, BOOLEAN = "text", "jsonb", "boolean"

# (type of the left side, operator): type of the result. The right side is a constant.
OPERATORS = {
    (JSONB, "->"): JSONB,
    (JSONB, "->>"): TEXT,
    (JSONB, "#>"): JSONB,
    (JSONB, "#>>"): TEXT,
    (JSONB, "?"): BOOLEAN,
    (JSONB, "@>"): BOOLEAN,
    (TEXT, "~"): BOOLEAN,
    (TEXT, "!~"): BOOLEAN,
    (TEXT, "~*"): BOOLEAN,
    (TEXT, "!~*"): BOOLEAN,
    (TEXT, "~~*"): BOOLEAN,
    (TEXT, "!~~*"): BOOLEAN,
}
# (function, type of the first argument): type of the result. All other arguments are constants.
FUNCTIONS = {
    ("substring", TEXT): TEXT,
    ("regexp_replace", TEXT): TEXT,
    ("lower", TEXT): TEXT,
    ("upper", TEXT): TEXT,
    ("initcap", TEXT): TEXT,
    ("reverse", TEXT): TEXT,
    ("translate", TEXT): TEXT,
    ("jsonb_typeof", JSONB): TEXT,
}
CONSTANT_TYPES = frozenset({"TEXT", "INTEGER", "JSONB"})
SAMPLES = {TEXT: "'x'", JSONB: "'{}'"}


@dataclass(frozen=True, slots=True)
class Storable:
    """An expression that may be stored, and the column that it reads."""

    column: str
    sample: str  # a statement that evaluates the expression for a row that no table contains


def storable(expression: str, types: Mapping[str, str]) -> Storable | None:
    """`types`: text or jsonb, by the name of the column; other columns are missing. None: it must not be stored."""
    try:
        reader = _Reader(expression, types)
        reader.expression()
    except (DefinitionError, _RefusedError):
        return None
    if not reader.is_at_end or len(reader.columns) != 1:
        return None
    (column,) = reader.columns
    quoted = column.replace('"', '""')
    sample = f"{SAMPLES[types[column]]}::{types[column]}"
    return Storable(column, f'SELECT {expression} FROM (SELECT {sample} AS "{quoted}") AS t')


class _RefusedError(Exception):
    """It is not on the lists."""


class _Reader:
    """Reads  expression = operand {operator constant},  operand = column | (expression) | function(expression, ...)."""

    def __init__(self, text: str, types: Mapping[str, str]) -> None:
        self.columns: set[str] = set()
        self._types = types
        self._cursor = Cursor(text)

    @property
    def is_at_end(self) -> bool:
        return not self._cursor.peek()

    def expression(self) -> str:
        """Returns its type."""
        type_ = self._operand()
        while self._cursor.peek() not in ("", ")", ",", "FROM", "FOR"):
            operator = self._cursor.next().key
            if operator == "!":  # the tokenizer takes it off !~
                operator += self._cursor.next().key
            type_ = _known(OPERATORS, (type_, operator))
            self._constant()
        return type_

    def _operand(self) -> str:
        if self._cursor.take("("):
            type_ = self.expression()
            self._cursor.expect(")")
        elif self._cursor.peek(1) == "(":
            type_ = self._call()
        else:
            type_ = self._column()
        if self._cursor.take("::"):
            self._cursor.expect("TEXT")
            return TEXT
        return type_

    def _column(self) -> str:
        name = self._cursor.name()
        if name not in self._types:
            raise _RefusedError(name)
        self.columns.add(name)
        return self._types[name]

    def _call(self) -> str:
        name = self._cursor.name()
        self._cursor.expect("(")
        result = _known(FUNCTIONS, (name, self.expression()))
        while self._cursor.take(",", "FROM", "FOR"):
            self._constant()
        self._cursor.expect(")")
        return result

    def _constant(self) -> None:
        """A number, or a string with its type."""
        value = self._cursor.next().key
        if value.isdecimal():
            return
        if not value.endswith("'"):
            raise _RefusedError(value)
        self._cursor.expect("::")
        type_ = self._cursor.next().key
        if type_ not in CONSTANT_TYPES:
            raise _RefusedError(type_)
        if type_ == "TEXT" and self._cursor.take("["):
            self._cursor.expect("]")


def _known(listed: Mapping[tuple[str, str], str], key: tuple[str, str]) -> str:
    if key not in listed:
        raise _RefusedError(" ".join(key))
    return listed[key]
