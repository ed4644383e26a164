"""The fence and the record: what every refresh writes beside its rows.

The first statement of the transaction moves the catalog row's epoch from the value that the refresh has read. Of two
workers with the same epoch the second waits for the first and then matches nothing, so it writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgtrickle.db.statements import statement
from pgtrickle.model.reasons import Reason, columns

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class RefreshRecord:
    """A refresh as the catalog and the history will show it."""

    pgt_id: int
    epoch: int
    frontier: dict[str, Any]
    data_timestamp: datetime
    started_at: datetime
    action: str
    reason: Reason | None
    initiated_by: str
    delta_rows: int
    requested_at: datetime | None
    fingerprints: dict[int, str | None]
    settled: dict[str, str | None]  # what the content rests on besides the sources


@dataclass(frozen=True, slots=True)
class CommittedRefresh:
    """A record with what was done to the table."""

    record: RefreshRecord
    inserted: int
    deleted: int
    timings: dict[str, float]


def fence(conn: Connection, records: Sequence[RefreshRecord]) -> set[int]:
    """The tables that are ours to write; somebody else was first at the others."""
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
    records = [w.record for w in written]
    reasons = [columns(r.reason) for r in records]
    conn.execute(
        statement("refresh_completed"),
        {
            "ids": [r.pgt_id for r in records],
            "data_timestamps": [r.data_timestamp for r in records],
            "started_at": [r.started_at for r in records],
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
        },
    )
