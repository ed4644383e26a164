"""Records a failed refresh in the catalog; the class of the error decides whether the table stays active."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from pgtrickle.db.connect import translated, without_values
from pgtrickle.db.statements import statement
from pgtrickle.errors import InvariantError, PgtrickleError, SourceChangedError, TransientError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.identifiers import qualified, quote_literal
from pgtrickle.model.reasons import Reason, ReasonCode, named
from pgtrickle.refresh.culprit import Culprit, is_of_a_value

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

_UNDEFINED_COLUMN = "42703"


def record_failure(
    conn: Connection,
    table: StreamTable,
    error: PgtrickleError,
    *,
    action: str,
    started_at: datetime,
    max_consecutive: int,
    empty: bool = False,
    culprit: Culprit | None = None,
) -> str:
    """Writes history, message, status and alert; returns the new status. `empty`: deletes the content, too. `culprit`:
    what an error of a value was found to come from.

    All failed refreshes are retried, after a pause that grows up to a minute. Transient errors do not change the
    status. A broken invariant causes a load; too many consecutive ones suspend the table. Any other error sets the
    status ERROR until a refresh succeeds.
    """
    counts = isinstance(error, TransientError | InvariantError)
    message, detail = _texts(table, error, culprit or Culprit())
    with conn.transaction():
        row = conn.execute(
            statement("refresh_failed"),
            {
                "message": message,
                "code": error.code,
                "detail": json.dumps({"of": message, "text": detail}) if detail is not None else None,
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
        if row is None:  # dropped or redefined meanwhile: the error is obsolete
            return table.status
        status = str(row[0])
        if empty:
            conn.execute("SELECT pgtrickle._empty(%s)", (table.pgt_id,))
        # Any role may LISTEN, and the message may quote rows: only readers of the table get it.
        where = f"{error.code}; pgtrickle.pgt_status() has the message"
        alert = {"event": "refresh_failed", "table": table.full_name, "status": status, "detail": where}
        conn.execute("SELECT pg_notify('pg_trickle_alert', %s)", (json.dumps(alert),))
    return status


def of_own_columns(conn: Connection, table: StreamTable, error: PgtrickleError) -> PgtrickleError:
    """The error of a refresh; if the stream table itself has lost columns, the one that names them."""
    if error.sqlstate != _UNDEFINED_COLUMN:
        return error
    with translated():
        parameters = {"relid": table.relid, "names": [c.name for c in table.columns]}
        row = conn.execute(statement("columns_lost"), parameters).fetchone()
    if row is None or not row[0]:
        return error
    repair = f"SELECT pgtrickle.repair_stream_table({quote_literal(qualified(table.schema, table.name))})"
    return SourceChangedError(f"column {', '.join(row[0])} of {table.full_name} itself was dropped", hint=repair)


def _texts(table: StreamTable, error: PgtrickleError, culprit: Culprit) -> tuple[str, str | None]:
    """The message for all who may read the stream table, and what only those may see who may read its sources: values,
    and keys of rows."""
    if not is_of_a_value(error):
        return error.one_line(), None
    expression = [culprit.expression] if culprit.expression is not None else []
    safe = without_values(error)
    message = f"{error.code}: {': '.join([table.full_name, *expression, safe])}"
    quoted = [] if error.message.lower() == safe.lower() else [" ".join(error.message.split())]
    rows = [f"row of {row}" for row in culprit.rows]
    return message, "; ".join([*quoted, *rows]) or None


def fenced_text(pgt_id: int) -> str:
    return f"stream table {pgt_id} was refreshed or changed by another session first"


def renamed_meanwhile(table: StreamTable) -> TransientError:
    """Statements name relations and types: what has the name now may belong to somebody else."""
    return TransientError(
        f"what the query of {table.full_name} names was renamed, dropped or replaced during the refresh"
    )


def moved_away(table: StreamTable) -> SourceChangedError:
    """Rows are written by name: after a rename, another table may have the name."""
    return SourceChangedError(
        f"the table {table.full_name} was dropped, renamed or moved to another schema",
        hint=f"put it back and resume, or SELECT pgtrickle.repair_stream_table('{table.full_name}')",
    )
