"""Messages between schedulers and the pipeline, over a socket that only this user can open.

A lost connection is a message, too: it shows each side that the other has ended.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Protocol

from pgtrickle.errors import TransientError
from pgtrickle.model.work import QueuedUnit
from pgtrickle.settings import Settings

BACKLOG = 1_024  # schedulers that reconnect at the same time after a restart of the pipeline


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """A scheduler introduces its database; again whenever its settings changed."""

    key: str  # of the database: system identifier/oid
    name: str
    dsn: str
    settings: Settings
    is_home: bool = False  # the database that --server names: what it says of the fleet applies


@dataclass(frozen=True, slots=True)
class Submit:
    jobs: tuple[QueuedUnit, ...]


@dataclass(frozen=True, slots=True)
class ClearCaches:
    """Removes compiled templates of the sender's database, and the stored ones that it has used."""


@dataclass(frozen=True, slots=True)
class Define:
    """Definitions that read other databases wait to be validated."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Returns queued units: the scheduler is about to end, or its database is disabled."""


@dataclass(frozen=True, slots=True)
class TableResult:
    """The result of one table. `branch`: ok, retry (transient), away (another database does not answer, or a mirror of
    it is not loaded), engine (Spark was lost), fenced (another session changed the table first), stop (a user must
    act). `share_ms`: its share of the time of its wave; 0: unknown."""

    pgt_id: int
    action: str
    branch: str
    detail: str | None = None
    share_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Finished:
    """Jobs that ended together, each with its status: SUCCEEDED, RETRYABLE_FAILED, PERMANENT_FAILED, CANCELLED."""

    jobs: tuple[tuple[int, str, str | None, int | None], ...]  # id, status, why, rounds of a cycle
    results: tuple[TableResult, ...]
    at: datetime


FromScheduler = DatabaseSettings | Submit | ClearCaches | Define | Withdraw


def listen(path: Path, key: bytes) -> Listener:
    path.unlink(missing_ok=True)
    return Listener(str(path), family="AF_UNIX", backlog=BACKLOG, authkey=key)


def call(path: Path, key: bytes, *, seconds: float, is_stopped: Callable[[], bool]) -> Connection:
    """Connects; retries while the other side is starting."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return Client(str(path), family="AF_UNIX", authkey=key)
        except (OSError, EOFError, AuthenticationError) as error:
            if time.monotonic() > deadline or is_stopped():
                raise TransientError("the pipeline does not answer") from error
            time.sleep(0.05)


class ReplyChannel(Protocol):
    """The dispatcher's way back to one scheduler."""

    def has_room(self) -> bool:
        """Whether a message can be sent without waiting. True for a lost connection: sending reports it."""

    def send(self, message: Finished) -> None: ...


class SocketReplies:
    """To a scheduler in another process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def has_room(self) -> bool:
        poll = select.poll()
        poll.register(self._connection, select.POLLOUT)
        return bool(poll.poll(0))

    def send(self, message: Finished) -> None:
        try:
            self._connection.send(message)
        except (OSError, ValueError):
            pass  # the receiver detects that it has ended
