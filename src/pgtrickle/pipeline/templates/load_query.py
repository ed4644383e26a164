"""The query that computes the content of a stream table: what an engine compiles and computes for a load.

PostgreSQL evaluates it in the server (refresh/loads.py). An engine elsewhere (Spark) computes the same rows and writes
them with the same columns into a staging table in the database. In both cases `apply` takes a relation with these
columns: `bags.identified` adds the identity of rows, `bags.replace_rows` and `groups.replace_groups` write them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgtrickle.model.catalog import Column
from pgtrickle.model.texts import FIRST_OF_USERS


@dataclass(frozen=True, slots=True)
class LoadQuery:
    """A SELECT with typed, named columns.

    Rows: c0, c1, ... are the columns of the stream table, with the hidden one of regions last. State of groups: k (the
    text of the key), n (number of rows), k0, k1, ... (the key), then the columns of the state.
    """

    sql: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EngineQuery:
    """The query of a load for another engine: a SELECT without texts of rows or keys, which PostgreSQL computes from
    its result. `columns`: names for the columns of the result. `shown`: the columns of the LoadQuery, as expressions
    over a relation q with these columns; `chosen`: a query over them, if the LoadQuery selects rows."""

    sql: str
    columns: tuple[str, ...]
    shown: str
    chosen: Callable[[str], str] | None = None

    def content(self, relation: str) -> str:
        """A relation with the columns of the LoadQuery, from one with the columns of the result."""
        shown = f"(SELECT {self.shown} FROM {relation} AS q)"
        return shown if self.chosen is None else f"({self.chosen(shown)})"

    def weighted(self, relation: str) -> str:
        """The same for a delta: the weight w is the last column of both relations."""
        return f"(SELECT {self.shown}, q.w FROM {relation} AS q)"


def rows_of_engine(query: str, columns: Sequence[Column]) -> EngineQuery:
    """For a stream table that stores exactly the rows of its query."""
    names = tuple(f"c{i}" for i in range(len(columns)))
    return EngineQuery(query, names, cast_rows(names, columns))


def rows_query(rows: str, columns: Sequence[Column]) -> LoadQuery:
    """The rows of the query `rows`, with the declared types of the stream table's columns."""
    names = tuple(f"c{i}" for i in range(len(columns)))
    return LoadQuery(f"SELECT {cast_rows(names, columns)} FROM ({rows}) AS q({', '.join(names)})", names)


def cast_rows(names: Sequence[str], columns: Sequence[Column]) -> str:
    return ", ".join(f"{cast(f'q.{name}', c.type, c.base)} AS {name}" for name, c in zip(names, columns, strict=True))


def cast(sql: str, type_name: str, base: int) -> str:
    """A value with its declared type. Not for user-defined types: a cast could run code of the type's owner."""
    return f"({sql})::{type_name}" if base < FIRST_OF_USERS else sql
