"""What the catalog says when a refresh failed: who has to act decides whether the table goes on, waits or stops."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from pgtrickle.db.statements import statement
from pgtrickle.errors import InvariantError, PgtrickleError, TransientError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.reasons import Reason, ReasonCode, named

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
    empty: bool = False,
) -> str:
    """Writes history, message, status and alert; returns the new status. `empty`: its content goes, too.

    Transient errors count towards SUSPENDED; a broken invariant marks the table for a new load and counts too;
    anything else will not go away by itself: ERROR.
    """
    counts = isinstance(error, TransientError | InvariantError)
    message = error.one_line()
    with conn.transaction():
        row = conn.execute(
            statement("refresh_failed"),
            {
                "message": message,
                "code": error.code,
                **named(Reason.of(ReasonCode.REFRESH_FAILED, error=message)),
                "action": action,
                "started_at": started_at,
                "initiated_by": "INITIAL"
                if not table.is_populated
                else "MANUAL"
                if table.refresh_requested
                else "SCHEDULER",
                "counts": counts,
                "max_consecutive": max_consecutive,
                "reload": isinstance(error, InvariantError),
                "requested_at": table.refresh_requested_at,
                "pgt_id": table.pgt_id,
                "definition_version": table.definition_version,
            },
        ).fetchone()
        if row is None:  # dropped or redefined meanwhile: nobody is waiting for this error
            return table.status
        status = str(row[0])
        if empty:
            conn.execute("SELECT pgtrickle._empty(%s)", (table.pgt_id,))
        # Everybody may listen, and the message may quote rows: it is for those who may read the table.
        detail = f"{error.code}; pgtrickle.pgt_status() has the message"
        alert = {"event": "refresh_failed", "table": table.full_name, "status": status, "detail": detail}
        conn.execute("SELECT pg_notify('pg_trickle_alert', %s)", (json.dumps(alert),))
    return status
