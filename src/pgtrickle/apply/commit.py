"""The fence and the record: what every refresh writes beside its rows.

The first statement of the transaction moves the catalog row's epoch from the value that the refresh has read. Of two
workers with the same epoch the second waits for the first and then matches nothing, so it writes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgtrickle.db.statements import statement
from pgtrickle.errors import FencedError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class Record:
    """A refresh as the catalog and the history will show it."""

    pgt_id: int
    epoch: int
    frontier: dict[str, Any]
    data_timestamp: datetime
    started_at: datetime
    action: str
    reason: str | None
    initiated_by: str
    delta_rows: int
    requested_at: datetime | None
    fingerprints: dict[int, str | None]
    settled: dict[str, str | None]  # what the content rests on besides the sources


def fence(conn: Connection, record: Record) -> None:
    moved = conn.execute(
        statement("refresh_fence"),
        {
            "frontier": json.dumps(record.frontier),
            "data_timestamp": record.data_timestamp,
            "requested_at": record.requested_at,
            "settled": json.dumps(record.settled),
            "pgt_id": record.pgt_id,
            "epoch": record.epoch,
        },
    ).rowcount
    if moved != 1:
        raise FencedError(f"stream table {record.pgt_id} was refreshed or changed by somebody else first")
    if record.fingerprints:
        conn.execute(
            statement("refresh_fingerprints"),
            {
                "pgt_id": record.pgt_id,
                "relids": list(record.fingerprints),
                "fingerprints": list(record.fingerprints.values()),
            },
        )


def write_history(conn: Connection, record: Record, *, inserted: int, deleted: int, timings: dict[str, float]) -> None:
    conn.execute(
        statement("refresh_completed"),
        {
            "pgt_id": record.pgt_id,
            "data_timestamp": record.data_timestamp,
            "started_at": record.started_at,
            "action": record.action,
            "reason": record.reason,
            "inserted": inserted,
            "deleted": deleted,
            "delta_rows": record.delta_rows,
            "initiated_by": record.initiated_by,
            "timings": json.dumps(timings),
            "ms": sum(timings.values()),
        },
    )
