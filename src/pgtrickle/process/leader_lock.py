"""One active process of a kind per database: by an advisory lock, which ends with its session; behind a transaction
pooler, which has no sessions to lend, by a lease that has to be renewed.

Both look at the other, so that a process with a pooler and one without exclude each other. None of this is what keeps
stream tables exact: the epoch of each does (apply/commit.py).
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
    """For whoever makes claims, so that it need not wait for its own lease when it has lost a connection."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class LeaderLock:
    """Good for one session; behind a pooler for as long as `renew` is called in time."""

    def __init__(self, conn: Connection, name: str, lock: int, holder: str) -> None:
        self._conn = conn
        self._lock = lock
        self._name = name
        self._holder = holder
        self._is_pooled = pooler_of(conn) == TRANSACTION
        self._renewed = float("-inf")
        self._has_lease = False

    def take(self) -> bool:
        """Whether it is ours now. In a database without our catalog there are no leases, and nothing to exclude."""
        with translated():
            readable, writable = self._one(statement("lease_table"))
            if self._is_pooled:
                return not writable or self._take_lease()
            if not self._one("SELECT pg_try_advisory_lock(%s)", (self._lock,))[0]:
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
        """When it is time to. Raises when somebody else was quicker."""
        if not self._has_lease or self.seconds_left() > 0:
            return
        with translated():
            if self._conn.execute(statement("lease_renew"), self._values()).fetchone() is None:
                self._has_lease = False
                raise TransientError(f"the lease of the {self._name} was not renewed in time; another process holds it")
        self._renewed = time.monotonic()

    def seconds_left(self) -> float:
        """Until `renew` has something to do."""
        return self._renewed + RENEW_SECONDS - time.monotonic() if self._has_lease else float("inf")

    def end(self) -> None:
        """So that nobody has to wait until it runs out. A session that ends takes its lock with it."""
        if self._has_lease:
            self._has_lease = False
            with translated():
                self._conn.execute(statement("lease_end"), {"name": self._name, "holder": self._holder})

    def _take_lease(self) -> bool:
        values = {**self._values(), "lock": self._lock}
        self._has_lease = self._conn.execute(statement("lease_take"), values).fetchone() is not None
        self._renewed = time.monotonic()
        return self._has_lease

    def _one(self, text: str, params: Sequence[object] | None = None) -> tuple[Any, ...]:
        row = self._conn.execute(text, params).fetchone()
        assert row is not None
        return row

    def _values(self) -> dict[str, object]:
        return {"name": self._name, "holder": self._holder, "seconds": LEASE_SECONDS}
