"""One active process of a kind per database: by an advisory lock, which ends with its session, or behind a transaction
pooler, which has no dedicated sessions, by a lease that must be renewed.

Each kind of holder also checks the other kind, so that processes with and without a pooler exclude each other.
Exactness does not depend on this: it is guaranteed by the epoch of each stream table (apply/commit.py).
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgtrickle.db.connect import TRANSACTION, pooler_of, translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import TransientError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

LEASE_SECONDS = 15.0
RENEW_SECONDS = 4.0


def new_holder() -> str:
    """Identifies this process, so that after a lost connection it does not wait for its own lease to expire."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class LeaderLock:
    """Valid for one session; behind a pooler as long as `renew` is called in time."""

    def __init__(self, conn: Connection, name: str, lock: int, holder: str) -> None:
        self._conn = conn
        self._lock = lock
        self._name = name
        self._holder = holder
        self._is_pooled = pooler_of(conn) == TRANSACTION
        self._renewed = float("-inf")
        self._has_lease = False

    def take(self) -> bool:
        """Whether this process holds the lock now. A database without our catalog has no leases, and needs no lock."""
        with translated():
            readable, writable = self._fetch_row(statement("lease_table"))
            if self._is_pooled:
                return not writable or self._take_lease()
            if not self._fetch_row("SELECT pg_try_advisory_lock(%s)", (self._lock,))[0]:
                return False
            values = {"name": self._name}
            lease = self._conn.execute(statement("lease_state"), values).fetchone() if readable else None
            if lease is not None and lease[0]:
                self._conn.execute("SELECT pg_advisory_unlock(%s)", (self._lock,))
                return False
            if lease is not None and writable:
                self._conn.execute(statement("lease_forget"), values)
            return True

    def renew(self) -> None:
        """Renews the lease when necessary. Raises an error if another process holds it."""
        if not self._has_lease or self.seconds_left() > 0:
            return
        with translated():
            if self._conn.execute(statement("lease_renew"), self._values()).fetchone() is None:
                self._has_lease = False
                raise TransientError(f"the lease of the {self._name} was not renewed in time; another process holds it")
        self._renewed = time.monotonic()

    def seconds_left(self) -> float:
        """Time until `renew` must act."""
        return self._renewed + RENEW_SECONDS - time.monotonic() if self._has_lease else float("inf")

    def end(self) -> None:
        """Releases the lease, so that others need not wait until it expires. An advisory lock ends with its session."""
        if self._has_lease:
            self._has_lease = False
            with translated():
                self._conn.execute(statement("lease_end"), {"name": self._name, "holder": self._holder})

    def _take_lease(self) -> bool:
        values = {**self._values(), "lock": self._lock}
        self._has_lease = self._conn.execute(statement("lease_take"), values).fetchone() is not None
        self._renewed = time.monotonic()
        return self._has_lease

    def _fetch_row(self, text: str, params: Sequence[object] | None = None) -> tuple[Any, ...]:
        row = self._conn.execute(text, params).fetchone()
        assert row is not None
        return row

    def _values(self) -> dict[str, object]:
        return {"name": self._name, "holder": self._holder, "seconds": LEASE_SECONDS}
