"""The position of a syntax error in a query."""

from __future__ import annotations

from psycopg.pq import DiagnosticField, ExecStatus

from pgtrickle.db.connect import Connection


def line_of_error(conn: Connection, query: str) -> int | None:
    """The line, from 0, of the parser's error; None without an error. Nothing is executed.

    It needs a transaction block, which stays usable.
    """
    with conn.transaction(force_rollback=True):
        result = conn.pgconn.prepare(b"", query.encode())
    position = result.error_field(DiagnosticField.STATEMENT_POSITION)
    if result.status != ExecStatus.FATAL_ERROR or position is None:
        return None
    return query[: int(position) - 1].count("\n")
