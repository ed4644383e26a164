"""Compares the rows of two queries with the columns of a stream table, as multisets.

PostgreSQL compares them by the equality of their types; rows with a type that has none are compared by their text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgtrickle.db.connect import Connection, translated
from pgtrickle.db.handover import hand_over
from pgtrickle.db.session import applied
from pgtrickle.define import author_query as author
from pgtrickle.errors import SourceChangedError
from pgtrickle.model.catalog import Column, StreamTable
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.codec import (
    BOOL,
    BPCHAR,
    DATE,
    FLOAT4,
    FLOAT8,
    INTEGERS,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    exact,
)
from pgtrickle.pipeline.differentiate.linear import ChangedSource

SAMPLES = 5  # rows of each kind that are shown
_AS_TEXT = "some types compared as text"
_NUMBERS = "numbers of rows compared"
_ROUNDED = "floats compared to 12 digits"

# json, xml and the geometric types have no equality to sort or hash by; their text has
_NO_EQUALITY = frozenset({114, 142, 600, 601, 602, 603, 604, 628, 718})
_PLAIN = INTEGERS | {BOOL, NUMERIC, FLOAT4, FLOAT8, TEXT, VARCHAR, BPCHAR, DATE, TIMESTAMP, TIMESTAMPTZ}


@dataclass(frozen=True, slots=True)
class Differences:
    """`missing`: rows that only the first query has; `extra`: rows that only the second has."""

    missing: int
    extra: int
    note: str | None = None
    samples: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.missing and not self.extra


class Evaluator:
    """Evaluates as the same role as a refresh: the service role or the author. `path`: the search_path for names in a
    session of the author, if not ours."""

    def __init__(
        self,
        conn: Connection,
        table: StreamTable,
        changed: Mapping[int, ChangedSource],
        settings: Mapping[str, tuple[str, str]],
        *,
        path: str | None = None,
    ) -> None:
        self._conn = conn
        self._table = table
        self._settings = settings
        self._path = path
        self._place = hand_over(conn) if table.runs_as_author else None
        self._windows = author.window_copies(conn, table, changed)[1] if table.runs_as_author else []

    def two_numbers(self, text: str) -> tuple[int, int]:
        ((one, other),) = self._rows(text, ("int8", "int8"))
        return int(one), int(other)

    def number_of_rows(self, query: str) -> int:
        ((count,),) = self._rows(f"SELECT count(*) FROM ({query}) AS q", ("int8",))
        return int(count)

    def texts(self, text: str) -> list[str]:
        return [str(row[0]) for row in self._rows(text, ("text",))]

    def _rows(self, text: str, types: Sequence[str]) -> Sequence[Sequence[Any]]:
        if self._place is None:
            with translated(), self._conn.transaction(), applied(self._conn, self._settings):
                return self._conn.execute(text).fetchall()
        text, copies = author.with_copies(self._conn, self._table, text)
        with translated(), author.session(self._place, self._table, [*copies, *self._windows]) as session:
            return list(session.rows(text, types, path=self._path))


def column_list(table: StreamTable) -> str:
    """By name: the star of a stream table has hidden columns."""
    return ", ".join(quote_ident(c.name) for c in table.columns)


def compare_numbers(wanted: tuple[Evaluator, str], have: tuple[Evaluator, str]) -> Differences:
    """By their numbers of rows, for queries that no single session can evaluate."""
    more = wanted[0].number_of_rows(wanted[1]) - have[0].number_of_rows(have[1])
    return Differences(max(more, 0), max(-more, 0), _NUMBERS)


def compare(evaluator: Evaluator, columns: Sequence[Column], wanted: str, have: str) -> Differences:
    sides = _Sides(columns, wanted, have)
    note = None
    try:
        missing, extra = evaluator.two_numbers(sides.counts())
    except SourceChangedError:  # a type, or one inside an array or composite, has no equality
        sides, note = _Sides(columns, wanted, have, as_text=True), _AS_TEXT
        missing, extra = evaluator.two_numbers(sides.counts())
    if not (missing or extra):
        return Differences(0, 0, note)
    if note is None and any(c.typid in (FLOAT4, FLOAT8) for c in columns):
        # A float sum depends on the order of its rows, which PostgreSQL does not promise even to itself.
        rounded = _Sides(columns, wanted, have, rounded=True)
        if evaluator.two_numbers(rounded.counts()) == (0, 0):
            return Differences(0, 0, _ROUNDED)
    return Differences(missing, extra, note, tuple(evaluator.texts(sides.samples())))


@dataclass(frozen=True, slots=True)
class _Sides:
    """Statements over the rows of both queries."""

    columns: Sequence[Column]
    wanted: str
    have: str
    rounded: bool = False
    as_text: bool = False

    def counts(self) -> str:
        return (
            f"{self._with()}SELECT (SELECT count(*) FROM (TABLE wanted EXCEPT ALL TABLE have) AS m), "
            "(SELECT count(*) FROM (TABLE have EXCEPT ALL TABLE wanted) AS e)"
        )

    def samples(self) -> str:
        """Some of the rows that differ. Whoever verifies may read the table: PostgreSQL has just checked that."""
        return (
            f"{self._with()}"
            f"(SELECT 'missing ' || m::text FROM (TABLE wanted EXCEPT ALL TABLE have) AS m LIMIT {SAMPLES}) UNION ALL "
            f"(SELECT 'extra ' || e::text FROM (TABLE have EXCEPT ALL TABLE wanted) AS e LIMIT {SAMPLES})"
        )

    def _with(self) -> str:
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        shown = ", ".join(self._comparable(f"q.c{i}", c) for i, c in enumerate(self.columns))
        wanted, have = (f"SELECT {shown} FROM ({query}) AS q({names})" for query in (self.wanted, self.have))
        return f"WITH wanted AS MATERIALIZED ({wanted}), have AS MATERIALIZED ({have}) "

    def _comparable(self, sql: str, column: Column) -> str:
        if column.typid in _NO_EQUALITY or (self.as_text and column.typid not in _PLAIN):
            return exact(sql, column.base)
        if self.rounded and column.typid in (FLOAT4, FLOAT8):
            special = f"{sql}::float8 IN ('NaN', 'Infinity', '-Infinity')"
            return f"CASE WHEN {special} THEN {sql}::text ELSE to_char({sql}::float8, '9.99999999999EEEE') END"
        return sql
