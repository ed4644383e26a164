"""Makes a stream table ready to be refreshed: compiled, its sources captured, its state table there."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from pgtrickle.apply.groups import create_state
from pgtrickle.capture.install import ensure_capture
from pgtrickle.db.connect import translated
from pgtrickle.model.catalog import StreamTable
from pgtrickle.runtime.compile import Compiled, compile_table

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def prepare(conn: Connection, table: StreamTable) -> Compiled:
    """Idempotent.

    A changed shape (definition, types, state) marks the content for a new load and recreates the state.
    """
    with translated():
        compiled = compile_table(conn, table)
        for source in table.captured:
            ensure_capture(conn, source.relid, source.columns if compiled.template is not None else ())
        shape = _shape(table, compiled)
        if (table.plan or {}).get("shape") != shape:
            _record(conn, table, compiled, shape)
    return compiled


def _record(conn: Connection, table: StreamTable, compiled: Compiled, shape: str) -> None:
    with conn.transaction():
        row = conn.execute("SELECT current_setting('TimeZone')").fetchone()
        plan = {**compiled.explanation, "shape": shape, "time_zone": row[0] if row else None}
        moved = conn.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET plan = %s::jsonb, effective_refresh_mode = %s, mode_reason = %s, "
            "needs_reinit = needs_reinit OR is_populated, "
            "reinit_reason = CASE WHEN is_populated "
            "THEN coalesce(reinit_reason, 'the definition or a source changed') END, "
            "epoch = epoch + 1 WHERE pgt_id = %s AND definition_version = %s",
            (json.dumps(plan), _mode(table, compiled), compiled.reason, table.pgt_id, table.definition_version),
        ).rowcount
        if moved and compiled.groups is not None:
            create_state(conn, compiled.groups)


def _mode(table: StreamTable, compiled: Compiled) -> str:
    if compiled.template is None:
        return "FULL"
    return "IMMEDIATE" if table.refresh_mode == "IMMEDIATE" else "DIFFERENTIAL"


def _shape(table: StreamTable, compiled: Compiled) -> str:
    """What the stored content and state depend on besides the data."""
    state = [(c.name, c.type, c.fold) for c in compiled.groups.state] if compiled.groups is not None else []
    parts = [table.definition_version, table.relid, compiled.load_sql, state, compiled.reason]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
