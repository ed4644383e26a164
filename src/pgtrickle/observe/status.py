"""Writes the state in shared memory to the database, where the status functions read it. At most once per tick,
and only when it has changed."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgtrickle.db.connect import TRANSACTION, pooler_of, translated
from pgtrickle.db.statements import statement
from pgtrickle.ipc.fleet_memory import FleetMemory

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.scheduler.tick import DatabaseScheduler

PUBLISH_SECONDS = 5.0  # interval for the states of schedulers; all else is published when it changes
MEMORY_SECONDS = 30.0  # between two measurements of the memory of the processes


class StatusPublisher:
    """Remembers what it has published."""

    def __init__(self, memory: FleetMemory) -> None:
        self._memory = memory
        self._published: tuple[str, str] | None = None
        self._version: tuple[object, ...] = ()
        self._checked_at = -PUBLISH_SECONDS
        self._sizes: dict[int, int] = {}
        self._measured_at = -MEMORY_SECONDS

    def publish(self, conn: Connection, scheduling: DatabaseScheduler) -> None:
        origins = scheduling.origin_changes
        problems, broker_problem = origins.problems(), origins.broker_problem()
        version = (*self._memory.version(), scheduling.state, problems, broker_problem)
        now = time.monotonic()
        if version == self._version and now - self._checked_at < PUBLISH_SECONDS:
            return
        self._version, self._checked_at = version, now
        state = self._state(scheduling) | {"origins": problems, "broker_problem": broker_problem}
        texts = json.dumps(state, sort_keys=True), json.dumps(origins.ledger(), sort_keys=True)
        if texts == self._published:
            return
        with translated():
            published = {"state": texts[0], "broker": texts[1], "keeps_session": pooler_of(conn) != TRANSACTION}
            conn.execute(statement("publish"), published)
        self._published = texts

    def _state(self, scheduling: DatabaseScheduler) -> dict[str, Any]:
        pool, settings = self._memory.pool(), scheduling.settings
        shares = self._memory.shares()
        own = next((share for share in shares if share.key == scheduling.key), None)
        processes: list[dict[str, Any]] = [
            {"kind": p.kind, "database": None, "pid": p.pid, "state": p.state, "since": _time(p.since)}
            for p in self._memory.processes()
        ]
        processes += [
            {"kind": "scheduler", "database": s.name, "pid": s.pid, "state": s.state, "since": _time(s.since)}
            for s in self._memory.schedulers()
        ]
        processes += [
            {"kind": "worker", "database": w.name, "pid": w.pid or None, "state": w.state, "since": _time(w.since)}
            for w in self._memory.workers()
        ]
        self._measure([p["pid"] for p in processes if p["kind"] != "worker"])
        for process in processes:
            is_ours = process["kind"] != "worker"  # the pid of a worker is that of a backend
            process["memory"] = self._sizes.get(process["pid"]) if is_ours else None
        return {
            "pool": {
                "active": pool.active,
                "max": pool.most or settings.max_dynamic_refresh_workers,
                "per_db_cap": own.cap if own is not None else settings.max_concurrent_refreshes,
                "mode": settings.parallel_refresh_mode,
            },
            "databases": [
                {
                    "name": s.name,
                    "used": s.used,
                    "quota": s.quota,
                    "queued": s.queued,
                    "is_own": s.key == scheduling.key,
                }
                for s in shares
            ],
            "processes": processes,
            "cache": {
                "hits": pool.cache_hits,
                "misses": pool.cache_misses,
                "entries": pool.cache_entries,
                "evictions": pool.cache_evictions,
                "max_entries": pool.cache_max or settings.template_cache_max_entries,
                "stored_hits": pool.stored_hits,
                "stored_misses": pool.stored_misses,
                "stored_entries": pool.stored_entries,
                "stored_evictions": pool.stored_evictions,
                "own": own.templates + own.stored if own is not None else 0,
            },
            "enabled": settings.enabled,
            "settings": scheduling.given_settings,
            "lag_warn_bytes": settings.publication_lag_warn_lsn,
        }

    def _measure(self, pids: list[int]) -> None:
        now = time.monotonic()
        if now - self._measured_at < MEMORY_SECONDS and self._sizes.keys() >= set(pids):
            return
        self._measured_at = now
        self._sizes = {pid: size for pid in pids if (size := resident_bytes(pid)) is not None}


def resident_bytes(pid: int) -> int | None:
    """None where there is no /proc, or no such process."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
