"""The fence and the record: what every refresh writes beside its rows.

The first statement of the transaction moves the catalog row's epoch from the value that the refresh has read. Of two
workers with the same epoch the second waits for the first and then matches nothing, so it writes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

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
    time_zone: str


def fence(conn: Connection, record: Record) -> None:
    moved = conn.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET epoch = epoch + 1, frontier = %s::jsonb, data_timestamp = %s, "
        "last_refresh_at = clock_timestamp(), is_populated = true, status = 'ACTIVE', needs_reinit = false, "
        "reinit_reason = NULL, refresh_done_at = coalesce(%s, refresh_done_at), consecutive_errors = 0, "
        "last_error_message = NULL, "
        "plan = CASE WHEN plan ->> 'time_zone' = %s THEN plan "
        "ELSE plan || jsonb_build_object('time_zone', %s::text) END, "
        "updated_at = clock_timestamp() WHERE pgt_id = %s AND epoch = %s",
        (
            json.dumps(record.frontier),
            record.data_timestamp,
            record.requested_at,
            record.time_zone,
            record.time_zone,
            record.pgt_id,
            record.epoch,
        ),
    ).rowcount
    if moved != 1:
        raise FencedError(f"stream table {record.pgt_id} was refreshed or changed by somebody else first")
    if record.fingerprints:
        conn.execute(
            "UPDATE pgtrickle.pgt_dependencies AS d SET fingerprint = f.fingerprint "
            "FROM unnest(%s::oid[], %s::text[]) AS f (relid, fingerprint) "
            "WHERE d.pgt_id = %s AND d.source_relid = f.relid AND d.fingerprint IS DISTINCT FROM f.fingerprint",
            (list(record.fingerprints), list(record.fingerprints.values()), record.pgt_id),
        )


def write_history(conn: Connection, record: Record, *, inserted: int, deleted: int, timings: dict[str, float]) -> None:
    conn.execute(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, data_timestamp, start_time, end_time, action, reason, "
        "rows_inserted, rows_deleted, delta_row_count, status, initiated_by, timings) "
        "VALUES (%s, %s, %s, clock_timestamp(), %s, %s, %s, %s, %s, 'COMPLETED', %s, %s::jsonb)",
        (
            record.pgt_id,
            record.data_timestamp,
            record.started_at,
            record.action,
            record.reason,
            inserted,
            deleted,
            record.delta_rows,
            record.initiated_by,
            json.dumps(timings),
        ),
    )
    column = "last_diff_ms" if record.action == "DIFFERENTIAL" else "last_full_ms"
    if record.action != "NO_DATA":
        conn.execute(
            f"UPDATE pgtrickle.pgt_stream_tables SET {column} = extract(epoch FROM clock_timestamp() - %s) * 1000 "
            "WHERE pgt_id = %s",
            (record.started_at, record.pgt_id),
        )
