"""Retries work that needs strong locks on tables in use: it releases its locks while others hold theirs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg

from pgtrickle.db.connect import translate
from pgtrickle.errors import TransientError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

LOCK_TIMEOUT_MS = 100  # below deadlock_timeout, so that we fail and not the writers
DEADLINE_SECONDS = 30.0
PAUSE_SECONDS = 0.1
_IN_USE = ("55P03", "40P01")  # lock_not_available, deadlock_detected


def retry_locks(conn: Connection, work: Callable[[], None]) -> None:
    """Runs the work in a savepoint of the open transaction; a rollback to it releases the locks before a retry."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            with conn.transaction():
                conn.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'")
                work()
                conn.execute("SET LOCAL lock_timeout = 0")
            return
        except psycopg.Error as error:
            if error.sqlstate not in _IN_USE:
                raise
            if time.monotonic() > deadline:
                raise TransientError(
                    f"objects of pgtrickle are in use: {translate(error).message}",
                    hint="try again when no long transaction uses them",
                ) from error
        time.sleep(PAUSE_SECONDS)
