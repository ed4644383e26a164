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
    """Within a transaction: these settings, each with its value and the one that the session has otherwise, until the
    block ends. Nothing is said to the server where there are none."""
    if not settings:
        yield
        return
    _set(conn, {name: value for name, (value, _) in settings.items()})
    try:
        yield
    finally:
        # In a transaction that has failed they go with it.
        if not conn.closed and conn.info.transaction_status == TransactionStatus.INTRANS:
            _set(conn, {name: usual for name, (_, usual) in settings.items()})


@contextmanager
def defaulted(conn: Connection, pinned: Mapping[str, str]) -> Iterator[None]:
    """Within a transaction: what our sessions have pinned is as a session of this role begins with, until the block
    ends."""
    conn.execute("; ".join(f"SET LOCAL {name} TO DEFAULT" for name in pinned))
    try:
        yield
    finally:
        if not conn.closed and conn.info.transaction_status == TransactionStatus.INTRANS:
            _set(conn, pinned)


def _set(conn: Connection, settings: Mapping[str, str]) -> None:
    calls = ", ".join("pg_catalog.set_config(%s, %s, true)" for _ in settings)
    conn.execute(f"SELECT {calls}", [item for pair in settings.items() for item in pair])
