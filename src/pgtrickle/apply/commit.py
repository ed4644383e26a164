"""The fence and the record, which every refresh writes besides its rows.

The first statement of the transaction increments the epoch of the catalog row that the refresh has read. Of two
workers with the same epoch the second waits for the first and then matches no row, so it writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pgtrickle.db.statements import statement
from pgtrickle.errors import TransientError
from pgtrickle.model.reasons import Reason, columns

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class RefreshRecord:
    """A refresh as the catalog and the history record it."""

    pgt_id: int
    epoch: int
    frontier: dict[str, Any]
    data_timestamp: datetime
    started_at: datetime  # its wave
    action: str
    reason: Reason | None
    initiated_by: str
    delta_rows: int
    requested_at: datetime | None
    fingerprints: dict[int, str | None]
    settled: dict[str, str | None]  # what the content depends on besides the sources
    engine: str = "postgres"
    engine_reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class CommittedRefresh:
    """A record with the numbers of rows written."""

    record: RefreshRecord
    inserted: int
    deleted: int
    timings: dict[str, float]
    source_ms: float = 0.0  # the part of the timings that the database spent
    is_cold: bool = False  # it started Spark or created a replica
    share_ms: float = 0.0  # of the timings, its part of what was done for several tables at once
    operator_rows: dict[str, Any] | None = None  # numbers of rows between the operators of a differential refresh


def fence(conn: Connection, records: Sequence[RefreshRecord]) -> set[int]:
    """The tables that this refresh may write; another worker committed the others first."""
    rows = conn.execute(
        statement("refresh_fence"),
        {
            "ids": [r.pgt_id for r in records],
            "epochs": [r.epoch for r in records],
            "frontiers": [json.dumps(r.frontier) for r in records],
            "data_timestamps": [r.data_timestamp for r in records],
            "requested_at": [r.requested_at for r in records],
            "settled": [json.dumps(r.settled) for r in records],
        },
    ).fetchall()
    for pgt_id, is_in_place, _ in rows:
        if not is_in_place:  # of several refreshes, each is written again in a transaction of its own
            raise TransientError(f"the table of stream table {pgt_id} was dropped or renamed during the refresh")
    moved = {row[0] for row in rows}
    prints = [(r.pgt_id, *pair) for r in records if r.pgt_id in moved for pair in r.fingerprints.items()]
    if prints:
        conn.execute(
            statement("refresh_fingerprints"),
            {
                "ids": [pgt_id for pgt_id, _, _ in prints],
                "relids": [relid for _, relid, _ in prints],
                "fingerprints": [fingerprint for _, _, fingerprint in prints],
            },
        )
    return moved


def write_history(conn: Connection, written: Sequence[CommittedRefresh]) -> None:
    records, now = [w.record for w in written], datetime.now(UTC)
    reasons = [columns(r.reason) for r in records]
    engines = [columns(r.engine_reason) for r in records]
    conn.execute(
        statement("refresh_completed"),
        {
            "ids": [r.pgt_id for r in records],
            "data_timestamps": [r.data_timestamp for r in records],
            "wave_ms": [(now - r.started_at).total_seconds() * 1000 for r in records],
            "actions": [r.action for r in records],
            "reason_codes": [r.code for r in reasons],
            "reason_params": [r.params for r in reasons],
            "reasons": [r.text for r in reasons],
            "inserted": [w.inserted for w in written],
            "deleted": [w.deleted for w in written],
            "delta_rows": [r.delta_rows for r in records],
            "initiated_by": [r.initiated_by for r in records],
            "timings": [json.dumps(w.timings) for w in written],
            "ms": [float(sum(w.timings.values())) for w in written],
            "engines": [r.engine for r in records],
            "engine_codes": [e.code for e in engines],
            "engine_params": [e.params for e in engines],
            "source_ms": [w.source_ms for w in written],
            "cold": [w.is_cold for w in written],
            "share_ms": [w.share_ms for w in written],
            "operator_rows": [None if w.operator_rows is None else json.dumps(w.operator_rows) for w in written],
        },
    )
