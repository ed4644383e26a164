"""A database in the dispatcher: its worker limits, its outgoing messages, and when it last got a worker."""

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

FEWEST_IDLE = 16  # workers of all databases whose idle connections may always stay open
IDLE_SHARE = 3  # idle connections may use one in so many of the server's connections: of 100, 33
IDLE_SECONDS = 30.0


@dataclass(slots=True)
class Client:
    """A database, as long as its scheduler is connected."""

    key: str
    site: ManagedDatabase
    replies: ReplyChannel
    limits: WorkerLimit
    used: float = 0.0  # when it last got a worker
    outbox: deque[Finished] = field(default_factory=deque)  # messages that its scheduler cannot take yet
    later: list[QueuedUnit] = field(default_factory=list)  # a worker of an earlier session still has their tables


def limits_of(settings: Settings) -> WorkerLimit:
    """Without parallel refreshes a database has one worker, whatever its quota."""
    if settings.parallel_refresh_mode == "on":
        return WorkerLimit(settings.per_database_worker_quota, settings.max_concurrent_refreshes)
    return SERIAL


def close_idle(clients: Iterable[Client]) -> None:
    """Closes connections that were idle for a while, and those above the bound."""
    by_use = sorted(clients, key=lambda c: c.used, reverse=True)
    idle, now = 0, time.monotonic()
    allowed = max((c.site.server_connections for c in by_use), default=0)
    most = max(FEWEST_IDLE, allowed // (IDLE_SHARE * WORKER_CONNECTIONS))
    for client in by_use:
        idle += client.site.idle()
        if idle > most or now - client.used > IDLE_SECONDS:
            client.site.shed()
