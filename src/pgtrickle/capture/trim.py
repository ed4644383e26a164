"""Deletes buffer rows that every reader has seen, in small batches, each its own transaction."""

from __future__ import annotations

from pgtrickle.capture.trigger import buffer_name
from pgtrickle.db import Connection, statement, translated

BATCH_ROWS = 10_000
MAX_BATCHES = 50


def trim(conn: Connection, relid: int, *, batch_rows: int = BATCH_ROWS, max_batches: int = MAX_BATCHES) -> int:
    """Rows deleted from one buffer; the rest waits for the next call. The rule is in sql/queries/trim_horizon.sql."""
    deleted = 0
    for _ in range(max_batches):
        with translated(), conn.transaction():
            count = _batch(conn, relid, batch_rows)
        deleted += count
        if count < batch_rows:
            break
    return deleted


def trim_all(conn: Connection, *, batch_rows: int = BATCH_ROWS, max_batches: int = MAX_BATCHES) -> dict[int, int]:
    """Rows deleted per source that had some."""
    with translated(), conn.transaction():
        relids = [row[0] for row in conn.execute(statement("captured_sources")).fetchall()]
    counts = {relid: trim(conn, relid, batch_rows=batch_rows, max_batches=max_batches) for relid in relids}
    return {relid: count for relid, count in counts.items() if count}


def _batch(conn: Connection, relid: int, batch_rows: int) -> int:
    row = conn.execute(statement("trim_horizon"), {"relid": relid}).fetchone()
    assert row is not None
    held, horizon, stopped = row
    if held:
        return 0
    buffer = buffer_name(relid)
    count = conn.execute(
        f"DELETE FROM {buffer} "
        f"WHERE ctid = ANY (ARRAY(SELECT b.ctid FROM {buffer} AS b WHERE b.xid < %s::xid8 LIMIT %s))",
        [horizon, batch_rows],
    ).rowcount
    if count and stopped:
        conn.execute(statement("fence"), {"ids": stopped})
    return count
