"""Catalog rows as the control plane writes them, for tests of what shows them."""

from __future__ import annotations

import json
from typing import Any

from pgtrickle.capture.install import ensure_capture
from pgtrickle.db import connect
from tests.conftest import Database

STATE = {
    "enabled": True,
    "tick": 7,
    "pool": {"active": 3, "max": 8, "per_db_cap": 6, "mode": "on"},
    "databases": [
        {"name": "shop", "used": 2, "quota": 4, "queued": 5},
        {"name": 'odd "db"', "used": 1, "quota": 0, "queued": 0},
    ],
    "processes": [
        {"kind": "launcher", "database": None, "pid": 11, "state": "running", "since": "2024-05-01T10:00:00Z",
         "memory": 52428800},
        {"kind": "scheduler", "database": "shop", "pid": 12, "state": "waiting", "since": "2024-05-01T10:00:01Z",
         "memory": 31457280},
    ],
    "cache": {"hits": 90, "misses": 10, "entries": 7, "evictions": 2, "max_entries": 64, "stored_hits": 6,
              "stored_misses": 4, "stored_entries": 5, "stored_evictions": 1, "own": 9},
}  # fmt: skip


def publish(db: Database, state: dict[str, Any] = STATE) -> None:
    db.sql(
        "INSERT INTO pgtrickle.pgt_runtime (state) VALUES (%s) ON CONFLICT (one) DO UPDATE "
        "SET state = excluded.state, updated_at = clock_timestamp()",
        json.dumps(state),
    )


BROKER = [
    {"origin": "7/16384", "source_oid": 16400, "pending_rows": 12, "max_lsn": "0/16B3748", "last_updated_tick": 7,
     "consumers": 3, "scans_done": 100, "scans_saved": 200},
]  # fmt: skip


def publish_broker(db: Database, mirror: int) -> None:
    """`mirror` is one of the table that the broker speaks of."""
    db.sql("UPDATE pgtrickle.pgt_runtime SET broker = %s", json.dumps(BROKER))
    db.sql(
        "INSERT INTO pgtrickle.pgt_mirrors VALUES (%s, '7/16384', '', 'shop', 'public', 'orders', 16400, '{1}')", mirror
    )


def create(db: Database, name: str = "s", query: str = "SELECT a FROM t", **options: Any) -> int:
    given = {"name": name, "query": query, **options}
    db.sql(f"SELECT pgtrickle.create_stream_table({', '.join(f'{k} => %s' for k in given)})", *given.values())
    return int(db.sql("SELECT max(pgt_id) FROM pgtrickle.pgt_stream_tables")[0][0])


def loaded(db: Database, pgt_id: int, age: str = "0 s", **columns: Any) -> None:
    """As after a refresh `age` ago that has seen everything."""
    given = {"status": "ACTIVE", "is_populated": True, **columns}
    db.sql(
        f"""UPDATE pgtrickle.pgt_stream_tables
            SET frontier = jsonb_build_object(
                    pgtrickle._origin(), jsonb_build_object('snapshot', pg_current_snapshot()::text)),
                data_timestamp = clock_timestamp() - interval '{age}',
                last_refresh_at = clock_timestamp() - interval '{age}',
                refresh_done_at = refresh_requested_at{"".join(f", {name} = %s" for name in given)}
            WHERE pgt_id = %s""",
        *given.values(),
        pgt_id,
    )


def capture(db: Database, table: str = "t") -> int:
    ((relid,),) = db.sql("SELECT %s::regclass::oid::int8", table)
    with connect(db.dsn, role="test", autocommit=True) as conn:
        ensure_capture(conn, relid, [1])
    return int(relid)


def replica(db: Database, relid: int, **columns: Any) -> None:
    """As after its first load, unless `columns` say otherwise."""
    ((now,),) = db.sql("SELECT pg_current_snapshot()::text")
    given = {"row_count": 3, "bytes": 4096, "file_count": 1, "snapshot": now, **columns}
    db.sql(
        f"""INSERT INTO pgtrickle.pgt_replicas (source_relid, origin, generation, location, columns_used,
                                                {", ".join(given)})
            VALUES (%s, pgtrickle._origin(), 'g', '/nowhere', '{{1}}'{", %s" * len(given)})""",
        relid, *given.values(),
    )  # fmt: skip


def refreshed(db: Database, pgt_id: int, action: str, ms: float, status: str = "COMPLETED", **columns: Any) -> None:
    given = {"rows_inserted": 2, "rows_deleted": 1, "delta_row_count": 3, **columns}
    db.sql(
        f"""INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, action, status, start_time, end_time, {", ".join(given)})
            SELECT %s, %s, %s, now, now + %s * interval '1 ms' {", %s" * len(given)} FROM clock_timestamp() AS now""",
        pgt_id, action, status, ms, *given.values(),
    )  # fmt: skip


def job(db: Database, members: list[int], status: str, age: str = "1 s", **columns: Any) -> int:
    given = {"unit_kind": "singleton", "scheduler_pid": 100, **columns}
    ((job_id,),) = db.sql(
        f"""INSERT INTO pgtrickle.pgt_scheduler_jobs (unit_key, members, status, enqueued_at, {", ".join(given)})
            VALUES (%s, %s, %s, clock_timestamp() - interval '{age}' {", %s" * len(given)}) RETURNING job_id""",
        f"{given['unit_kind']}:{'-'.join(map(str, members))}", members, status, *given.values(),
    )  # fmt: skip
    return int(job_id)


def row(db: Database, text: str, *params: Any) -> dict[str, Any]:
    cursor = db.connect().execute(text, params or None)
    (values,) = cursor.fetchall()
    return dict(zip([c.name for c in cursor.description or []], values, strict=True))
