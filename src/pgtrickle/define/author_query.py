"""Stream tables whose query calls untrusted code: evaluated by a session that runs as their author (ADR 22).

Data that only we may read is copied for that session first: change windows, and mirrors of tables of other databases.
Such a table has no state table, because the visible rows of a state are computed by expressions of the query, which we
would have to evaluate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pgtrickle.db import catalog
from pgtrickle.db.author import AuthorSession, Copy, as_author
from pgtrickle.db.connect import SAFE_PATH, Connection
from pgtrickle.db.handover import Handover, hand_over
from pgtrickle.db.statements import statement
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.flow import Cut, Window
from pgtrickle.model.identifiers import buffer_copy_name, quote_ident
from pgtrickle.model.session import evaluated
from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.text.references import references_to
from pgtrickle.pipeline.text.tokens import identifier, tokenize

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from pgtrickle.db.roundtrip import Rows

_OURS = "pgtrickle_changes"
_PATH = "SELECT pg_catalog.set_config('search_path', %s, true)"
_NONE = Window(Cut(100, 100, ()), Cut(100, 100, ()))


def session(
    place: Handover,
    table: StreamTable,
    copies: Sequence[Copy] = (),
    *,
    settings: Mapping[str, str] | None = None,
    may_write: bool = False,
) -> AbstractContextManager[AuthorSession]:
    """`settings`: further settings of the author, besides those of all evaluations."""
    settings = evaluated(table.session_settings) if settings is None else settings
    return as_author(place, table.author, settings=settings, copies=copies, may_write=may_write)


# -- reading
# -----------------------------------------------------------------------------------------------------------------


def read_rows(
    place: Handover, table: StreamTable, text: str, copies: Sequence[Copy], on_rows: Callable[[Rows], None] | None
) -> Rows:
    """The signed rows of a delta statement: weight and row."""
    with session(place, table, copies) as author:
        return author.rows(_signed(text), ("int8", "text"), on_rows=on_rows)


def read_many(
    place: Handover, table: StreamTable, text: str, copies: Sequence[Copy], types: Sequence[pa.DataType]
) -> Generator[pa.Table]:
    """The same for many rows."""
    with session(place, table, copies) as author, closing(author.batches(_signed(text), ("int8", "text"), types)) as b:
        yield from b


def read_load(
    place: Handover,
    table: StreamTable,
    text: str,
    copies: Sequence[Copy],
    types: Sequence[pa.DataType],
    settings: Mapping[str, str],
) -> Generator[pa.Table]:
    """The rows of a load statement."""
    query = f"SELECT q.r::pg_catalog.text FROM ({text}) AS q(r)"
    with (
        session(place, table, copies, settings=settings) as author,
        closing(author.batches(query, ("text",), types)) as batches,
    ):
        yield from batches


def _signed(text: str) -> str:
    return f"SELECT q.w::pg_catalog.int8, q.r::pg_catalog.text FROM ({text}) AS q(w, r)"


# -- copies
# -----------------------------------------------------------------------------------------------------------------


def window_copies(
    conn: Connection, table: StreamTable, changed: Mapping[int, ChangedSource], *, empty: bool = False
) -> tuple[dict[int, ChangedSource], list[Copy]]:
    """Copies of the change windows for the author's session, with the columns that the table reads and its author may
    read; a buffer also contains columns of other readers."""
    readable = _columns(conn, table, changed)
    copies = []
    for relid, change in changed.items():
        columns = "".join(f", c.c{attnum}" for attnum, may in readable.get(relid, ()) if may)
        rows = replace(change, is_copied=False).images
        text = f"SELECT c.xid, c.action{columns} FROM {rows}"
        copies.append(Copy(buffer_copy_name(relid), f"{text} WITH NO DATA" if empty else text))
    return {relid: replace(change, is_copied=True) for relid, change in changed.items()}, copies


def unreadable(conn: Connection, table: StreamTable) -> dict[int, frozenset[int]]:
    """Key columns of sources that the author may not read."""
    used = _columns(conn, table, [s.relid for s in table.sources])
    return {relid: frozenset(a for a, may in columns if not may) for relid, columns in used.items()}


def _columns(
    conn: Connection, table: StreamTable, relids: Mapping[int, ChangedSource] | Sequence[int]
) -> dict[int, list[tuple[int, bool]]]:
    wanted = [(s.relid, a) for s in table.sources if s.relid in relids for a in sorted(s.columns)]
    asked = {"relids": [r for r, _ in wanted], "columns": [a for _, a in wanted], "role": table.author}
    found: dict[int, list[tuple[int, bool]]] = {}
    for relid, attnum, may in conn.execute(statement("author_columns"), asked).fetchall():
        found.setdefault(relid, []).append((attnum, may))
    return found


def with_copies(conn: Connection, table: StreamTable, query: str) -> tuple[str, tuple[Copy, ...]]:
    """The query with its mirrors replaced by copies, and these copies with the columns that it names."""
    mirrors = [r for r in catalog.relations(conn, [s.relid for s in table.sources]) if r.schema == _OURS]
    if not mirrors:
        return query, ()
    keywords = catalog.keywords(conn)
    named = {identifier(query[t.start : t.end]) for t in tokenize(query) if t.is_name}
    copies = []
    for mirror in mirrors:
        columns = ", ".join(f"m.{quote_ident(c.name)}" for c in mirror.columns if c.name in named)
        copies.append(Copy(mirror.name, f"SELECT {columns} FROM {_OURS}.{quote_ident(mirror.name)} AS m"))
        for place in references_to(query, (_OURS, mirror.name), keywords):
            query = place.replaced(query, "pg_temp", mirror.name)
    return query, tuple(copies)


# -- analysing
# -----------------------------------------------------------------------------------------------------------------


class QueryDescriber:
    """Describes statements of a table: with our role if its code is trusted, otherwise as its author, because parse
    analysis and planning run code, too."""

    def __init__(self, conn: Connection, table: StreamTable) -> None:
        self._conn = conn
        self._table = table

    def describe(self, sql: str) -> list[SqlType]:
        if not self._table.runs_as_author:
            return [SqlType(*row) for row in catalog.describe(self._conn, sql)]
        sql, copies = self._copied(sql)
        with session(self._place(), self._table, copies, may_write=True) as author:
            columns = author.describe(sql)
        return [SqlType(*row) for row in catalog.typed(self._conn, [(t, m, c) for t, m, c in columns])]

    def plan(self, sql: str) -> None:
        """Raises PostgreSQL's error."""
        if not self._table.runs_as_author:
            catalog.plan(self._conn, sql)
            return
        sql, copies = self._copied(sql)
        self._explain([sql], copies)

    def explain(self, statements: Sequence[str], relids: Sequence[int]) -> None:
        """The same for statements over windows of these sources."""
        if not self._table.runs_as_author:
            for sql in statements:
                self._conn.execute(f"EXPLAIN {sql}")
            return
        changed = {relid: ChangedSource(relid, _NONE, 0) for relid in relids}
        self._explain(statements, window_copies(self._conn, self._table, changed, empty=True)[1])

    def _explain(self, statements: Sequence[str], copies: Sequence[Copy]) -> None:
        *first, last = [f"EXPLAIN (COSTS OFF) {sql}" for sql in statements]
        with session(self._place(), self._table, copies) as author:
            author.rows(last, ("text",), first=first)

    def _copied(self, sql: str) -> tuple[str, list[Copy]]:
        sql, copies = with_copies(self._conn, self._table, sql)
        return sql, [replace(copy, query=f"{copy.query} WITH NO DATA") for copy in copies]

    def _place(self) -> Handover:
        return hand_over(self._conn, snapshot=False)


@contextmanager
def looked_at(
    conn: Connection,
    table: StreamTable | None,
    query: str,
    name: str,
    *,
    path: str | None = None,
    relids: Collection[int] = (),
) -> Iterator[tuple[Connection, frozenset[str]]]:
    """A session with a temporary view over a query, for reading the catalogs; and the relations in it that are copies.
    Created as the role that evaluates the table (None: ours), because parse analysis may run code of types.

    `path`: the search_path for names. `relids`: sources whose changes the query reads.
    """
    if table is None or not table.runs_as_author:
        with conn.transaction(force_rollback=True):
            if path is not None:
                conn.execute(_PATH, (path,))
            # binary: uses the extended protocol, in which the server accepts only one statement.
            conn.execute(f"CREATE TEMPORARY VIEW {name} AS {query}", binary=True)
            if path is not None:
                conn.execute(_PATH, (SAFE_PATH,))
            yield conn, frozenset()
        return
    query, copies = with_copies(conn, table, query)
    empty = [replace(copy, query=f"{copy.query} WITH NO DATA") for copy in copies]
    changed = {relid: ChangedSource(relid, _NONE, 0) for relid in relids}
    empty += window_copies(conn, table, changed, empty=True)[1] if changed else []
    with session(hand_over(conn, snapshot=False), table, empty, may_write=True) as author:
        yield author.look_at(query, name, path or SAFE_PATH), frozenset(copy.name for copy in copies)
