"""`pgtrickle refresh` while `pgtrickle run` serves the database: requests refreshes and waits for their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgtrickle.db.connect import TRANSACTION, Connection, connect, outside, translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import PgtrickleError, TransientError

NO_LIMIT_S = 7 * 86_400.0
# The procedure commits, so it must be called outside a transaction and without parameters.
_CALL = "SELECT pg_catalog.format('CALL pgtrickle.refresh_and_wait(%%L, %%L)', %s::text, %s::text)"


def refresh_by_run(dsn: str, names: Sequence[str] | None, timeout: float | None) -> list[dict[str, Any]]:
    """Refreshes these stream tables, or all that are not suspended, one after the other. The rows have the columns that
    `pgtrickle refresh` prints. A failure is part of its row; a time-out is raised."""
    seconds = NO_LIMIT_S if timeout is None else timeout
    pins = {"search_path": "public"}  # for names without a schema
    rows = []
    with connect(dsn, role="refresh", autocommit=True, pooler=TRANSACTION, pins=pins) as conn, translated():
        if names is None:
            name_rows = conn.execute("SELECT s.name FROM pgtrickle.pgt_status() AS s ORDER BY s.pgt_id").fetchall()
            names = [name for (name,) in name_rows]
        for name in names:
            error = None
            ((call,),) = conn.execute(_CALL, (name, f"{seconds} seconds")).fetchall()
            try:
                with translated():
                    outside(conn, call)
            except TransientError:
                raise
            except PgtrickleError as failed:
                error = failed.one_line()
            rows.append(_result(conn, name, error))
    return rows


def _result(conn: Connection, name: str, error: str | None) -> dict[str, Any]:
    row = conn.execute(statement("last_refresh"), {"name": name}).fetchone()
    columns = ("table", "action", "inserted", "deleted", "ms", "reason")
    values = dict(zip(columns, row or (name, None, None, None, None, None), strict=True))
    return {**values, "error": error}
