"""Asks the writers of a database to notify its scheduler while a change would make a table due (ADR 35)."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from pgtrickle.capture.trigger import WAKE_LOCK
from pgtrickle.db.connect import TRANSACTION, pooler_of, translated

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.scheduler.tick import DatabaseScheduler

SHORTEST_POLL_SECONDS = 0.02


class WriterSignal:
    """An exclusive advisory lock of the scheduler's session. Writers try to take it shared: one that fails notifies.

    A writer that succeeds keeps its shared lock until it commits, and does not notify. So once the scheduler has the
    lock, a later snapshot contains the changes of all writers that did not notify: `acquire` precedes the tick. While
    such a writer is open the scheduler cannot take the lock and polls: at the shortest interval after it has detected
    changes, then at doubled intervals. It also polls where writers cannot notify: a session of a transaction pooler
    holds no lock and receives no notifications, and a transaction that has notified cannot be prepared.
    """

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self.is_held = False
        self._pause = SHORTEST_POLL_SECONDS
        self._poll_at = -math.inf  # monotonic
        with translated():
            row = conn.execute("SELECT current_setting('max_prepared_transactions') = '0'").fetchone()
        self._can_notify = row is not None and bool(row[0]) and pooler_of(conn) != TRANSACTION

    def acquire(self, scheduling: DatabaseScheduler) -> None:
        """Before a tick. Takes the lock if a change would make a table due."""
        if self.is_held or self._seconds_until_needed(scheduling) > 0:
            return
        if self._can_notify:
            with translated():
                row = self._conn.execute("SELECT pg_try_advisory_lock(%s)", (WAKE_LOCK,)).fetchone()
            self.is_held = row is not None and bool(row[0])
        self._poll_at = time.monotonic() + self._pause
        self._pause = SHORTEST_POLL_SECONDS if self.is_held else self._pause * 2

    def release(self) -> None:
        """Releases the lock, so that writers do not notify: the scheduler will detect changes anyway."""
        if self.is_held:
            self.is_held = False
            with translated():
                self._conn.execute("SELECT pg_advisory_unlock(%s)", (WAKE_LOCK,))

    def seconds_left(self, scheduling: DatabaseScheduler) -> float:
        """Time until the next tick has to take the lock. Called after each tick."""
        needed_in = self._seconds_until_needed(scheduling)
        if needed_in > 0:
            self.release()
            return needed_in
        if self.is_held:
            return math.inf
        return self._poll_at - time.monotonic()

    def note_changes(self) -> None:
        """The latest tick detected changes: resets the interval of polls."""
        self._pause = SHORTEST_POLL_SECONDS
        self._poll_at = min(self._poll_at, time.monotonic() + self._pause)

    def _seconds_until_needed(self, scheduling: DatabaseScheduler) -> float:
        if not scheduling.settings.event_driven_wake:
            return math.inf
        return scheduling.next_wake_time() - time.time()
