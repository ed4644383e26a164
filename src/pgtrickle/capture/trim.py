"""Trims buffers: deletes what every reader has read, in small batches, each in its own transaction.

A buffer that stays long because a reader is slow gets an index on xid; see capture/trigger.py for why
not from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from pgtrickle.db import Connection, outside, statement, translated
from pgtrickle.errors import TransientError
from pgtrickle.model.identifiers import buffer_name

BATCH_ROWS = 10_000
MAX_BATCHES = 50
MOST_SOURCES = 1_000  # in one statement: each takes a lock
LONG_BUFFER_BYTES = 16 * 1024 * 1024


def trim(conn: Connection, relid: int, *, batch_rows: int = BATCH_ROWS, max_batches: int = MAX_BATCHES) -> int:
    """Rows deleted from one buffer; the rest is left to the next call. Rule: sql/queries/capture/trim_horizon.sql."""
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
    chunks = [relids[i : i + MOST_SOURCES] for i in range(0, len(relids), MOST_SOURCES)]
    filled = [relid for chunk in chunks for relid in _filled(conn, chunk)]
    counts = {relid: trim(conn, relid, batch_rows=batch_rows, max_batches=max_batches) for relid in filled}
    return {relid: count for relid, count in counts.items() if count}


def _filled(conn: Connection, relids: Sequence[int]) -> list[int]:
    """Sources whose buffers are not empty, found by one statement."""
    arms = [f"SELECT {r:d}::int8 WHERE EXISTS (SELECT FROM {buffer_name(r)})" for r in relids]
    with translated():
        return [row[0] for row in conn.execute(" UNION ALL ".join(arms)).fetchall()]


def long_buffers(conn: Connection, *, long_bytes: int = LONG_BUFFER_BYTES) -> list[tuple[int, bool]]:
    """Sources whose buffers need an index, and whether an invalid one must be dropped first."""
    with translated():
        rows = conn.execute(statement("long_buffers"), {"long_bytes": long_bytes}).fetchall()
    return [(relid, invalid) for relid, invalid in rows]


def index_long_buffers(
    conn: Connection,
    *,
    long_bytes: int = LONG_BUFFER_BYTES,
    bounded: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[int]:
    """Sources whose buffers got their index. Blocks no writer; `conn` is in autocommit mode and may wait for old
    transactions: `bounded` cancels what runs too long inside it. (These statements cannot set a timeout:
    they refuse to be in a transaction, and the session may be a pooler's.)
    """
    indexed = []
    for relid, invalid in long_buffers(conn, long_bytes=long_bytes):
        index = f"pgtrickle_changes.changes_{relid:d}_xid"
        try:
            with bounded(), translated():
                if invalid:
                    outside(conn, f"DROP INDEX CONCURRENTLY IF EXISTS {index}")
                outside(conn, f"CREATE INDEX CONCURRENTLY changes_{relid:d}_xid ON {buffer_name(relid)} (xid)")
        except TransientError:
            continue  # it leaves an invalid index, which is found the next time
        indexed.append(relid)
    return indexed


def hollow_buffers(conn: Connection, *, long_bytes: int = LONG_BUFFER_BYTES) -> list[int]:
    """Sources whose buffers are empty and large: a burst of changes has gone through them."""
    with translated():
        large = [row[0] for row in conn.execute(statement("large_buffers"), {"long_bytes": long_bytes}).fetchall()]
    filled = set(_filled(conn, large)) if large else set()
    return [relid for relid in large if relid not in filled]


def release_space(
    conn: Connection,
    *,
    long_bytes: int = LONG_BUFFER_BYTES,
    bounded: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[int]:
    """Gives the space of large empty buffers back to the operating system; returns their sources. VACUUM removes only
    what no snapshot sees, and truncates the file only while no writer waits: as TRUNCATE would not. An index that the
    buffer got when it was long goes with it."""
    released = []
    for relid in hollow_buffers(conn, long_bytes=long_bytes):
        try:
            with bounded(), translated():
                outside(conn, f"DROP INDEX CONCURRENTLY IF EXISTS pgtrickle_changes.changes_{relid:d}_xid")
                outside(conn, f"VACUUM (TRUNCATE) {buffer_name(relid)}")
        except TransientError:
            continue  # the next time
        released.append(relid)
    still = set(hollow_buffers(conn, long_bytes=long_bytes))
    return [relid for relid in released if relid not in still]


def _batch(conn: Connection, relid: int, batch_rows: int) -> int:
    row = conn.execute(statement("trim_horizon"), {"relid": relid}).fetchone()
    assert row is not None
    held, horizon, stopped, confirmed = row
    if held:
        return 0
    buffer = buffer_name(relid)
    count = conn.execute(
        f"DELETE FROM {buffer} "
        f"WHERE ctid = ANY (ARRAY(SELECT b.ctid FROM {buffer} AS b WHERE b.xid < %s::xid8 "
        "AND (%s::pg_lsn IS NULL OR b.lsn <= %s::pg_lsn) LIMIT %s))",
        [horizon, confirmed, confirmed, batch_rows],
    ).rowcount
    if count and stopped:
        conn.execute(statement("fence"), {"ids": stopped})
    return count
