"""Where in a query PostgreSQL finds the fault."""

from __future__ import annotations

from psycopg.pq import DiagnosticField, ExecStatus

from pgtrickle.db.connect import Connection


def line_of_error(conn: Connection, query: str) -> int | None:
    """The line, from 0, that the parser complains about; None when it does not. Nothing is executed.

    In a transaction block, which it leaves usable.
    """
    with conn.transaction(force_rollback=True):
        result = conn.pgconn.prepare(b"", query.encode())
    position = result.error_field(DiagnosticField.STATEMENT_POSITION)
    if result.status != ExecStatus.FATAL_ERROR or position is None:
        return None
    return query[: int(position) - 1].count("\n")
