"""Registers the new address of a server in all databases that read from it."""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.db.connect import TRANSACTION, connect, translated
from pgtrickle.db.discover import databases, in_database, server_label


def move_server(servers: Sequence[str], old: str, new: str) -> dict[str, int]:
    """How many mirrors and readers were moved in each database, by its name and server."""
    moved = {}
    for dsn in servers:
        with connect(dsn, role="control", autocommit=True, pooler=TRANSACTION) as conn, translated():
            names = sorted(databases(conn, dsn))
        for name in names:
            with connect(in_database(dsn, name), role="control", autocommit=True, pooler=TRANSACTION) as conn:
                with translated():
                    row = conn.execute("SELECT pgtrickle.move_server(%s, %s)", (old, new)).fetchone()
                moved[f"{name}@{server_label(dsn)}"] = row[0] if row is not None else 0
    return moved
