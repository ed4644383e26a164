"""Finds stream tables that have to be prepared again, or cannot be refreshed, although no row has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgtrickle.capture.fingerprint import fingerprints
from pgtrickle.db import catalog
from pgtrickle.define.prepare import is_judged
from pgtrickle.refresh.decide import prepared_first

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def unprepared(conn: Connection, ids: Sequence[int]) -> list[int]:
    """Returns those of the given stream tables, by the test that a refresh applies."""
    tables = catalog.load_stream_tables(conn, ids) if ids else []
    current = fingerprints(conn, {s.relid for t in tables for s in t.watched})
    return [
        table.pgt_id
        for table in tables
        if table.lost_privilege is not None
        or not is_judged(table)
        or prepared_first(table, current, differentiable=table.effective_mode != "FULL", has_content=True) is not None
    ]
