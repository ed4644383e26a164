"""Reads subscribers and their lag from the catalog."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.publish.lag import Laggard

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class Feed:
    """A stream table with subscribers: its oid, and the attribute numbers to be captured. `state` changes
    whenever the table or its capture is changed; None while it is not correctly captured."""

    relid: int
    attnums: tuple[int, ...]
    state: str | None


def read_feeds(conn: Connection) -> tuple[bool, list[Feed]]:
    """Whether any stream table has subscribers (by a feed or a publication), and the feeds."""
    with translated():
        row = conn.execute(statement("feeds")).fetchone()
    assert row is not None
    return bool(row[0]), [Feed(relid, tuple(attnums), state) for relid, attnums, state in row[1]]


def laggards(conn: Connection, limit_bytes: int) -> list[Laggard]:
    with translated():
        rows = conn.execute(statement("subscriber_lags"), {"bytes": limit_bytes}).fetchall()
    return [Laggard(*row) for row in rows]


def alert(conn: Connection, laggard: Laggard, limit_bytes: int) -> None:
    """Notifies the listeners of pg_trickle_alert."""
    text = json.dumps(
        {
            "event": "subscriber_lag",
            "table": laggard.table,
            "detail": f"{laggard.title} is {laggard.bytes} bytes behind, more than publication_lag_warn_lsn "
            f"({limit_bytes})",
            "subscriber": laggard.name,
            "bytes": laggard.bytes,
        }
    )
    with translated():
        conn.execute("SELECT pg_notify('pg_trickle_alert', %s)", (text,))
