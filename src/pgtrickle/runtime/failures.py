"""What the catalog says when a refresh failed: who has to act decides whether the table goes on, waits or stops."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from pgtrickle.errors import InvariantError, PgtrickleError, TransientError
from pgtrickle.model.catalog import StreamTable

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def record_failure(
    conn: Connection,
    table: StreamTable,
    error: PgtrickleError,
    *,
    action: str,
    started_at: datetime,
    max_consecutive: int,
) -> str:
    """Writes history, message, status and alert; returns the new status.

    Transient errors count towards SUSPENDED; a broken invariant marks the table for a new load and counts too;
    anything else will not go away by itself: ERROR.
    """
    counts = isinstance(error, TransientError | InvariantError)
    message = error.one_line()
    with conn.transaction():
        row = conn.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET consecutive_errors = consecutive_errors + 1, "
            "last_error_message = %s, "
            "status = CASE WHEN NOT %s THEN 'ERROR' WHEN consecutive_errors + 1 >= %s THEN 'SUSPENDED' "
            "ELSE status END, "
            "needs_reinit = needs_reinit OR %s, reinit_reason = CASE WHEN %s THEN %s ELSE reinit_reason END, "
            "epoch = epoch + %s::int, "
            "refresh_done_at = CASE WHEN %s THEN refresh_done_at ELSE coalesce(%s, refresh_done_at) END, "
            "updated_at = clock_timestamp() WHERE pgt_id = %s AND definition_version = %s RETURNING status",
            (
                message,
                counts,
                max_consecutive,
                isinstance(error, InvariantError),
                isinstance(error, InvariantError),
                message,
                isinstance(error, InvariantError),  # fences whoever still works on the content that is not trusted
                counts,
                table.refresh_requested_at,
                table.pgt_id,
                table.definition_version,
            ),
        ).fetchone()
        if row is None:  # dropped or redefined meanwhile: nobody is waiting for this error
            return table.status
        status = str(row[0])
        conn.execute(
            "INSERT INTO pgtrickle.pgt_refresh_history "
            "(pgt_id, start_time, end_time, action, status, initiated_by, error_message) "
            "VALUES (%s, %s, clock_timestamp(), %s, 'FAILED', %s, %s)",
            (
                table.pgt_id,
                started_at,
                action,
                "INITIAL" if not table.is_populated else "MANUAL" if table.refresh_requested else "SCHEDULER",
                message,
            ),
        )
        alert = {"event": "refresh_failed", "table": table.full_name, "status": status, "detail": message}
        conn.execute("SELECT pg_notify('pg_trickle_alert', %s)", (json.dumps(alert)[:7900],))
    return status
