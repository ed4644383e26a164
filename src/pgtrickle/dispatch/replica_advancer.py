"""Advances replicas in the background: until a replica has advanced, its source's change buffer is not trimmed."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from pgtrickle.db import connect, translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import PgtrickleError
from pgtrickle.replica import ReplicaStore
from pgtrickle.telemetry import REPLICA_FAILED, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0


class ReplicaAdvancer:
    """For one database. At most one thread runs, with its own connection."""

    def __init__(self, name: str, dsn: str) -> None:
        self._name = name
        self._dsn = dsn
        self._checked_at = float("-inf")
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def advance_due(self, conn: Connection, store: ReplicaStore) -> None:
        """Starts the thread if there are replicas and the last check was a while ago. `conn` is idle."""
        with self._lock:
            is_running = self._thread is not None and self._thread.is_alive()
            if is_running or time.monotonic() - self._checked_at < EVERY_SECONDS:
                return
            self._checked_at = time.monotonic()
        with translated():
            row = conn.execute(statement("has_replicas")).fetchone()
        if row is not None and row[0]:
            self._thread = threading.Thread(
                target=self._advance, args=(store,), name=f"replicas {self._name}", daemon=True
            )
            self._thread.start()

    def _advance(self, store: ReplicaStore) -> None:
        try:
            with connect(self._dsn, role="replica", autocommit=True) as conn:
                for relid in store.due(conn):
                    store.advance(conn, relid)
        except PgtrickleError as error:
            log.warning(
                "A replica did not advance",
                extra=event(REPLICA_FAILED, database=self._name, detail=error.one_line()),
            )
