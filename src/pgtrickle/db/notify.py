"""Waits for NOTIFY without holding a transaction or a lock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

_SLICE_SECONDS = 0.5  # how late a stop request may be noticed


class Stop(Protocol):
    def is_set(self) -> bool: ...


def wait_for_notify(conn: Connection, seconds: float, stop: Stop) -> bool:
    """Returns True as soon as a notification arrives, False after the timeout or a stop request."""
    deadline = time.monotonic() + seconds
    while not stop.is_set():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        for _ in conn.notifies(timeout=min(left, _SLICE_SECONDS), stop_after=1):
            return True
    return False
