"""A database as the dispatcher knows it: how many workers it may have, what waits for it, when it was last served."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pgtrickle.dispatch.managed_database import ManagedDatabase
from pgtrickle.dispatch.quota import SERIAL, WORKER_CONNECTIONS, WorkerLimit
from pgtrickle.ipc.channel import Finished, ReplyChannel
from pgtrickle.model.work import QueuedUnit
from pgtrickle.settings import Settings

FEWEST_IDLE = 16  # workers of all databases whose connections may stay open without work, whatever the server allows
IDLE_SHARE = 3  # they may have one in so many of the connections that the server allows: of 100, as many as that
IDLE_SECONDS = 30.0


@dataclass(slots=True)
class Client:
    """A database, as long as its scheduler is connected."""

    key: str
    site: ManagedDatabase
    replies: ReplyChannel
    limits: WorkerLimit
    used: float = 0.0  # when a worker was last given to it
    outbox: deque[Finished] = field(default_factory=deque)  # what its scheduler has no room for yet
    later: list[QueuedUnit] = field(default_factory=list)  # a worker still has tables of theirs, from a session before


def limits_of(settings: Settings) -> WorkerLimit:
    """Without parallel refreshes a database has one worker, whatever it was promised."""
    if settings.parallel_refresh_mode == "on":
        return WorkerLimit(settings.per_database_worker_quota, settings.max_concurrent_refreshes)
    return SERIAL


def close_idle(clients: Iterable[Client]) -> None:
    """Connections that nobody has needed for a while, and those above the bound."""
    by_use = sorted(clients, key=lambda c: c.used, reverse=True)
    kept, now = 0, time.monotonic()
    allowed = max((c.site.server_connections for c in by_use), default=0)
    most = max(FEWEST_IDLE, allowed // (IDLE_SHARE * WORKER_CONNECTIONS))
    for client in by_use:
        kept += client.site.idle()
        if kept > most or now - client.used > IDLE_SECONDS:
            client.site.shed()
