"""Settings of an author's session, for the statements that evaluate the author's query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@contextmanager
def applied(conn: Connection, settings: Mapping[str, tuple[str, str]]) -> Iterator[None]:
    """Applies settings (value, value of the session) until the block ends, within a transaction. Sends nothing if there
    are none."""
    if not settings:
        yield
        return
    _set(conn, {name: value for name, (value, _) in settings.items()})
    try:
        yield
    finally:
        # A failed transaction resets them itself.
        if not conn.closed and conn.info.transaction_status == TransactionStatus.INTRANS:
            _set(conn, {name: usual for name, (_, usual) in settings.items()})


@contextmanager
def defaulted(conn: Connection, pinned: Mapping[str, str]) -> Iterator[None]:
    """Resets the pinned settings to the defaults of the role until the block ends, within a transaction."""
    conn.execute("; ".join(f"SET LOCAL {name} TO DEFAULT" for name in pinned))
    try:
        yield
    finally:
        if not conn.closed and conn.info.transaction_status == TransactionStatus.INTRANS:
            _set(conn, pinned)


def _set(conn: Connection, settings: Mapping[str, str]) -> None:
    calls = ", ".join("pg_catalog.set_config(%s, %s, true)" for _ in settings)
    conn.execute(f"SELECT {calls}", [item for pair in settings.items() for item in pair])
