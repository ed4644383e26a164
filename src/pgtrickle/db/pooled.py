"""Sessions behind a pooler, which assigns a server session to many clients in turn.

In transaction mode we must not leave state in the session, and the state of other clients must not affect us: each
transaction begins with our settings, set locally, in the round trip of its BEGIN. A single statement is a transaction
of four commands in one round trip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Self, cast

import psycopg
from psycopg import sql
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.types import datetime

from pgtrickle.errors import InvariantError

if TYPE_CHECKING:
    from psycopg.abc import AdaptContext, Params, Query, QueryNoTemplate
    from psycopg.copy import Writer

# Explicit, because another client may have set default_transaction_*.
READ_COMMITTED = "ISOLATION LEVEL READ COMMITTED READ WRITE"
ON_STANDBY = "ISOLATION LEVEL READ COMMITTED READ ONLY"  # a standby refuses even the keywords READ WRITE

# Settings, besides the pinned ones, that affect results or objects: reset to the value at the start of the session.
DEFAULTED = (
    "role",
    "timezone",
    "row_security",
    "transform_null_equals",
    "xmloption",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "default_text_search_config",
    "default_tablespace",
    "default_table_access_method",
)

# Statements that start a transaction, or whose effect would outlive ours.
_STAYS = re.compile(r"\s*(?:BEGIN|START|LISTEN|PREPARE|DISCARD|SET(?!\s+(?:LOCAL|TRANSACTION|CONSTRAINTS)))\b", re.I)


class SessionPooledConnection(psycopg.Connection[tuple[Any, ...]]):
    """For session poolers. Before it is closed, the session is reset, because the pooler may not do so."""

    def close(self) -> None:
        if not self.closed and self.pgconn.transaction_status == TransactionStatus.IDLE:
            try:
                self.autocommit = True
                self.execute("DISCARD ALL")
            except psycopg.Error:
                pass  # the connection is lost
        super().close()


class _Iso(Loader):
    """Parses values in ISO format, which our transactions set. The driver would use the DateStyle that the session has
    at the time of parsing. Times with a time zone are in UTC."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:  # noqa: ARG002 - the driver's signature
        super().__init__(oid, None)


class _Date(_Iso, datetime.DateLoader):
    pass


class _Timestamp(_Iso, datetime.TimestampLoader):
    pass


class _Timestamptz(_Iso, datetime.TimestamptzLoader):
    pass


_LOADERS: Mapping[str, type[Any]] = {
    "date": _Date,
    "timestamp": _Timestamp,
    "timestamptz": _Timestamptz,
}


class PooledConnection(psycopg.Connection[tuple[Any, ...]]):
    """For transaction poolers; also works without one. Always in autocommit mode."""

    pins = ""  # a SELECT that sets them for the transaction

    def pin(self, settings: Mapping[str, str]) -> None:
        """Changes the settings, from the next transaction on."""
        calls = [f"pg_catalog.set_config('{name}', NULL, true)" for name in DEFAULTED if name not in settings]
        for name, value in settings.items():
            parts = (sql.Literal(part).as_string(self) for part in (name, value))
            calls.append(f"pg_catalog.set_config({', '.join(parts)}, true)")
        self.pins = f"SELECT {', '.join(calls)}"
        for type_, loader in _LOADERS.items():
            self.adapters.register_loader(type_, loader)

    @property
    def is_idle(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def usual(self) -> str:
        """The default transaction mode. Servers report whether they are a standby."""
        return ON_STANDBY if self.info.parameter_status("in_hot_standby") == "on" else READ_COMMITTED

    def begin(self, how: str | None = None, *, snapshot: str | None = None) -> None:
        # The settings are a query, and a snapshot must be imported before the first query.
        taken = "" if snapshot is None else f"SET TRANSACTION SNAPSHOT '{snapshot}'; "
        psycopg.Cursor(self).execute(f"BEGIN {how or self.usual}; {taken}{self.pins}")

    @contextmanager
    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[psycopg.Transaction]:
        if not self.is_idle:
            with super().transaction(savepoint_name, force_rollback) as inner:
                yield inner
            return
        self.begin()
        try:
            yield psycopg.Transaction(self, savepoint_name, force_rollback)
        except BaseException:
            self.undo()
            raise
        if force_rollback:
            self.rollback()
        else:
            self.commit()

    def within(self) -> AbstractContextManager[object]:
        """Runs in the open transaction, or in a new one."""
        return self.transaction() if self.is_idle else nullcontext()

    def undo(self) -> None:
        """Rolls back after an error, without hiding it."""
        if not self.closed and not self.broken:
            try:
                self.rollback()
            except psycopg.Error:
                self.close()

    def outside(self, text: str) -> None:
        """Runs a statement that cannot run in a transaction, without our settings."""
        psycopg.Cursor(self).execute(text)


class PooledCursor(psycopg.Cursor[tuple[Any, ...]]):
    @property
    def _pooled(self) -> PooledConnection:
        return cast("PooledConnection", self.connection)

    def execute(  # type: ignore[override]  # of its two signatures the one with parameters
        self,
        query: QueryNoTemplate,
        params: Params | None = None,
        *,
        prepare: bool | None = None,
        binary: bool | None = None,
    ) -> Self:
        if isinstance(query, str) and _STAYS.match(query):
            raise InvariantError(f"this would change a session of the pooler: {query[:60]}")
        conn = self._pooled
        if not conn.is_idle:
            return super().execute(query, params, prepare=prepare, binary=binary)
        try:
            # Plain cursors, because the connection counts as idle until the results arrive.
            with conn.pipeline():
                psycopg.Cursor(conn).execute(f"BEGIN {conn.usual}")
                psycopg.Cursor(conn).execute(conn.pins)
                super().execute(query, params, binary=binary)
                psycopg.Cursor(conn).execute("COMMIT")
        except BaseException:
            conn.undo()
            raise
        return self

    def executemany(self, query: Query, params_seq: Iterable[Params], *, returning: bool = False) -> None:
        with self._pooled.within():
            super().executemany(query, params_seq, returning=returning)

    def stream(
        self, query: Query, params: Params | None = None, *, binary: bool | None = None, size: int = 1
    ) -> Iterator[tuple[Any, ...]]:
        with self._pooled.within():
            yield from super().stream(query, params, binary=binary, size=size)

    @contextmanager
    def copy(
        self, statement: Query, params: Params | None = None, *, writer: Writer | None = None
    ) -> Iterator[psycopg.Copy]:
        with self._pooled.within(), super().copy(statement, params, writer=writer) as copy:
            yield copy
