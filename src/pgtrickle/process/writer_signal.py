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
    """An advisory lock of the scheduler's session: a writer that does not get it shared notifies.

    A writer that gets it keeps it until it commits, and does not notify. So whoever has obtained the lock knows that a
    later snapshot contains the changes of all writers that did not notify: `ask` comes before the tick. While such a
    writer is still open the lock is refused, and the scheduler polls: soon while it finds something, else ever later.
    So it does where nobody can notify: a session of a transaction pooler holds no lock and hears nothing, and a
    transaction that has notified cannot be prepared.
    """

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self.is_held = False
        self._pause = SHORTEST_POLL_SECONDS
        self._poll_at = -math.inf  # monotonic
        with translated():
            row = conn.execute("SELECT current_setting('max_prepared_transactions') = '0'").fetchone()
        self._can_notify = row is not None and bool(row[0]) and pooler_of(conn) != TRANSACTION

    def ask(self, scheduling: DatabaseScheduler) -> None:
        """Before a tick. Takes the lock if a change would make a table due."""
        if self.is_held or self._wanted_in(scheduling) > 0:
            return
        if self._can_notify:
            with translated():
                row = self._conn.execute("SELECT pg_try_advisory_lock(%s)", (WAKE_LOCK,)).fetchone()
            self.is_held = row is not None and bool(row[0])
        self._poll_at = time.monotonic() + self._pause
        self._pause = SHORTEST_POLL_SECONDS if self.is_held else self._pause * 2

    def release(self) -> None:
        """Writers need not notify: the scheduler will have a look anyway."""
        if self.is_held:
            self.is_held = False
            with translated():
                self._conn.execute("SELECT pg_advisory_unlock(%s)", (WAKE_LOCK,))

    def seconds_left(self, scheduling: DatabaseScheduler) -> float:
        """Time until the next tick has to ask. Called after each tick."""
        wanted_in = self._wanted_in(scheduling)
        if wanted_in > 0:
            self.release()
            return wanted_in
        if self.is_held:
            return math.inf
        return self._poll_at - time.monotonic()

    def found(self) -> None:
        """The latest tick has found something: the next one need not be late."""
        self._pause = SHORTEST_POLL_SECONDS
        self._poll_at = min(self._poll_at, time.monotonic() + self._pause)

    def _wanted_in(self, scheduling: DatabaseScheduler) -> float:
        if not scheduling.settings.event_driven_wake:
            return math.inf
        return scheduling.next_wake_time() - time.time()
