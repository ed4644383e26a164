"""Runs untrusted code: as its author, in a session that is used only for this and then closed.

SET ROLE is no security boundary, because code may RESET ROLE. Inside a SECURITY DEFINER function PostgreSQL
refuses that, so a temporary function that belongs to the author evaluates the author's statement. What it leaves in the
session (settings, prepared statements, open cursors, deferred triggers, LISTEN) could affect later statements: so it is
called once, nothing is ever committed, and then the session is closed (ADR 22).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from pgtrickle.db.connect import OFF, SAFE_PATH, begin
from pgtrickle.db.copy import read_batches
from pgtrickle.db.handover import Handover, connect_again
from pgtrickle.db.roundtrip import Query, Rows, run_queries
from pgtrickle.db.statements import statement
from pgtrickle.errors import ConfigError, InvariantError
from pgtrickle.model.identifiers import quote_ident

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class Copy:
    """Private data as a temporary table that the author may read."""

    name: str
    query: str

    @property
    def table(self) -> str:
        return f'"pg_temp".{quote_ident(self.name)}'


class AuthorSession:
    """Evaluates one statement as its author. `author` is the name of a role."""

    def __init__(self, conn: Connection, author: str) -> None:
        self._conn = conn
        self._author = author
        self._is_spent = False

    def rows(
        self,
        query: str,
        types: Sequence[str],
        *,
        first: Sequence[str] = (),
        path: str | None = None,
        on_rows: Callable[[Rows], None] | None = None,
    ) -> Rows:
        """`types`: of the columns, names of built-in types. `first`: statements that go before it. `path`: the
        search_path for resolving names, if not ours."""
        self._spend()
        first = [*first, *([] if path is None else [self._set_path(path)])]
        text = f"SELECT * FROM pg_temp.__pgt_run($1, $2, $3) AS r({_columns(types)})"
        values = [self._author, first, query]
        (answer,) = run_queries(self._conn, [Query(text, values, is_kept=False, on_rows=on_rows)])
        return answer.rows

    def batches(self, query: str, types: Sequence[str], carried: Sequence[pa.DataType]) -> Generator[pa.Table]:
        """The same for many rows, see `read_batches`; `carried`: the types that they get here."""
        self._spend()
        given = sql.SQL("{}, ARRAY[]::pg_catalog.text[], {}").format(sql.Literal(self._author), sql.Literal(query))
        text = f"SELECT * FROM pg_temp.__pgt_run({given.as_string(self._conn)}) AS r({_columns(types)})"
        with closing(read_batches(self._conn, text, carried)) as batches:
            yield from batches

    def describe(self, query: str) -> Rows:
        """Type, modifier and collation of each column of a query, which is neither run nor planned."""
        self._spend()
        text = "SELECT * FROM pg_temp.__pgt_describe($1, $2)"
        (answer,) = run_queries(self._conn, [Query(text, [self._author, query], is_kept=False)])
        return answer.rows

    def look_at(self, query: str, view: str, path: str = SAFE_PATH) -> Connection:
        """The session after it created a temporary view over the query, which runs the author's code, too:
        constants of arrays and composite types are checked against the domains in them. For reading catalogs and
        nothing else, with our own settings again. `path`: the search_path for resolving names of the query."""
        self._spend()
        first = [self._set_path(path), f"CREATE TEMPORARY VIEW {view} AS {query}"]
        text = f"SELECT * FROM pg_temp.__pgt_run($1, $2, 'SELECT 1') AS r({_columns(['int4'])})"
        run_queries(self._conn, [Query(text, [self._author, first], is_kept=False)])
        self._conn.execute("RESET ALL")
        self._conn.execute(f"SET LOCAL search_path = {SAFE_PATH}")
        return self._conn

    def _set_path(self, path: str) -> str:
        return f"SELECT pg_catalog.set_config('search_path', {sql.Literal(path).as_string(self._conn)}, true)"

    def _spend(self) -> None:
        if self._is_spent:
            raise InvariantError("a session that has run an author's code cannot be reused")
        self._is_spent = True


@contextmanager
def as_author(
    place: Handover,
    author: str,
    *,
    settings: Mapping[str, str] | None = None,
    copies: Sequence[Copy] = (),
    may_write: bool = False,
) -> Iterator[AuthorSession]:
    """A session at the server (and snapshot) of another one. `copies` are created first, with our privileges;
    `settings`: those of the author that matter. `may_write`: for temporary objects; nothing of it stays."""
    conn = connect_again(place, role="author")
    try:
        begin(conn, "ISOLATION LEVEL REPEATABLE READ READ WRITE", snapshot=place.snapshot)
        for copy in copies:
            conn.execute(f"CREATE TEMPORARY TABLE {quote_ident(copy.name)} AS {copy.query}")
            conn.execute(f"GRANT SELECT ON TABLE {copy.table} TO {quote_ident(author)}")
        _make_functions(conn, author)
        set_local(conn, settings or {})
        if not may_write:
            conn.execute("SET TRANSACTION READ ONLY")
        if place.pooler != OFF:
            conn.execute("SAVEPOINT __pgt_before")
        yield AuthorSession(conn, author)
    finally:
        _end(conn, is_pooled=place.pooler != OFF)


def set_local(conn: Connection, settings: Mapping[str, str]) -> None:
    """For the transaction. The search_path is that of REFRESH MATERIALIZED VIEW, independent of the settings."""
    wanted = {**{name: value for name, value in settings.items() if name != "search_path"}, "search_path": SAFE_PATH}
    calls = ", ".join("pg_catalog.set_config(%s, %s, true)" for _ in wanted)
    conn.execute(f"SELECT {calls}", [item for pair in wanted.items() for item in pair])


def _make_functions(conn: Connection, author: str) -> None:
    """The author owns them: so we SET ROLE for a moment, in which no code of the author runs."""
    row = conn.execute("SELECT pg_catalog.current_setting('role'), current_user").fetchone()
    assert row is not None
    role, own = row
    become = "SELECT pg_catalog.set_config('role', %s, true)"
    try:
        conn.execute(become, (author,))
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"{own} may not SET ROLE to {author}, whose functions the query calls",
            hint=f"GRANT {quote_ident(author)} TO {quote_ident(own)}",
        ) from error
    for name, arguments in (("run", "text, text[], text"), ("describe", "text, text")):
        conn.execute(statement(f"author_{name}"))
        conn.execute(f"GRANT EXECUTE ON FUNCTION pg_temp.__pgt_{name}({arguments}) TO {quote_ident(own)}")
    conn.execute(become, (role,))


def _columns(types: Sequence[str]) -> str:
    return ", ".join(f"c{i} pg_catalog.{type_}" for i, type_ in enumerate(types))


def _end(conn: Connection, *, is_pooled: bool) -> None:
    """Never commits: deferred triggers and cursors WITH HOLD would run then, as us. Behind a pooler the
    server session would be reused by other clients, so it is terminated."""
    try:
        if is_pooled and not conn.closed:
            conn.execute("ROLLBACK TO SAVEPOINT __pgt_before")
            conn.execute("SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())")
    except psycopg.Error:
        pass  # terminated as intended, or already closed
    finally:
        _drop(conn)


def _drop(conn: Any) -> None:
    """Closes the connection without the cleanup of a pooled one."""
    if not conn.closed:
        psycopg.Connection.close(conn)
