"""Which tables of other databases have changed: by the broker's counts while they are fresh, otherwise by polling.

Nothing here waits for another database. A thread polls; its result is used in this tick or the
next. No change is missed when switching between both: a count is compared with the last count of the
same generation, a poll counts from the cut of the last poll or count.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pgtrickle.broker.scan import lsn_text
from pgtrickle.db.discover import origin_dsn, server_label
from pgtrickle.ipc.registry import CAPACITY, Interest, Registry, SourceStatus
from pgtrickle.ipc.wake_socket import WakeSocket
from pgtrickle.model.flow import Cut
from pgtrickle.origin.poll_session import OriginSession
from pgtrickle.origin.poller import OriginPoller
from pgtrickle.settings import Settings, Sources
from pgtrickle.telemetry import BROKER_FULL, ORIGIN_BACK, ORIGIN_LOST, event

log = logging.getLogger(__name__)

# A broker with the same interval writes a count about every tick: we wait for it for this part of a tick
# before we poll. A count that is older than a tick is never used.
GRACE = 0.2
EARLY = 0.1  # the next poll may be early by this part of a tick
FULL_SECONDS = 60.0  # between two attempts to register sources that did not fit


@dataclass(frozen=True, slots=True)
class MirroredSource:
    """A row of the statement mirrors."""

    pgt_id: int
    origin: str
    server: str
    database: str
    relid: int
    is_stored: bool = True  # False: the changes are those of its reader, which reads the table's replica


@dataclass(slots=True)
class _Origin:
    """One other database with the mirrors of its tables."""

    key: str
    server: str
    database: str
    mirrors: dict[int, list[int]] = field(default_factory=dict)  # source there -> mirrors here
    known: dict[int, tuple[int, int]] = field(default_factory=dict)  # last count of the broker: generation and count
    since: dict[int, Cut] = field(default_factory=dict)  # the cut up to which each source was checked
    poller: OriginPoller | None = None
    begun: float = -math.inf  # our latest poll
    is_direct: bool = False  # because counts are missing
    late: float = math.inf  # until then we wait for a late count
    logged_problem: str | None = None

    @property
    def name(self) -> str:
        return f"{self.server}/{self.database}"


class OriginChanges(Protocol):
    """The interface of a scheduler to tables of other databases."""

    @property
    def changes_seen_at(self) -> Mapping[int, float]:
        """Mirror -> end of the latest poll that found changes."""

    def watch(self, mirrors: Iterable[MirroredSource]) -> None: ...

    def poll(self, reader: str, settings: Settings, now: float, /) -> list[int]:
        """The mirrors whose sources may have changes."""

    def next_due_time(self, interval: float, /) -> float: ...

    def problems(self) -> list[dict[str, Any]]: ...

    def broker_problem(self) -> str | None: ...

    def ledger(self) -> list[dict[str, Any]]: ...


class UnpolledOrigins:
    """Does not poll: each tick treats all tables of origins as changed, and the refresh reads the changes. For a
    scheduler whose caller waits for each tick. `seen_at` 0: they are read again.
    """

    def __init__(self) -> None:
        self._mirrors: tuple[int, ...] = ()
        self.changes_seen_at: dict[int, float] = {}
        self.seen_at = 0.0

    def watch(self, mirrors: Iterable[MirroredSource]) -> None:
        self._mirrors = tuple(mirror.pgt_id for mirror in mirrors)

    def poll(self, _reader: str, _settings: Settings, _now: float, /) -> list[int]:
        self.changes_seen_at = dict.fromkeys(self._mirrors, self.seen_at)
        return list(self._mirrors)

    def next_due_time(self, _interval: float, /) -> float:
        return math.inf

    def problems(self) -> list[dict[str, Any]]:
        return []

    def broker_problem(self) -> str | None:
        return None

    def ledger(self) -> list[dict[str, Any]]:
        return []


class OriginChangeTracker:
    """Lives as long as the scheduler's process. Only its thread calls it. `registry` None: there is no broker."""

    def __init__(
        self,
        dsn: str,
        servers: Sequence[str],
        sources: Sources,
        *,
        registry: Registry | None = None,
        wake_socket: WakeSocket | None = None,
        slot: int = 0,
    ) -> None:
        self._dsn = dsn
        self._servers = servers
        self._sources = sources
        self._registry = registry
        self._wake_socket = wake_socket
        self._slot = slot
        self._origins: dict[str, _Origin] = {}
        self._registered: tuple[Interest, ...] = ()
        self._retry_at = math.inf
        self._unfit = 0
        self._uses_broker = False
        self._counts: Mapping[tuple[str, int], SourceStatus] = {}
        self.changes_seen_at: dict[int, float] = {}  # mirror -> end of the latest poll that found changes

    def watch(self, mirrors: Iterable[MirroredSource]) -> None:
        """Sets all mirrors. The state of their sources is kept."""
        origins: dict[str, _Origin] = {}
        for mirror in mirrors:
            server = mirror.server or server_label(self._dsn)
            origin = origins.get(mirror.origin)
            if origin is None:
                old = self._origins.get(mirror.origin)
                origin = origins[mirror.origin] = _Origin(mirror.origin, server, mirror.database)
                if old is not None:
                    origin.known, origin.since, origin.begun = old.known, old.since, old.begun
                    if old.name == origin.name:
                        origin.poller, origin.logged_problem, old.poller = old.poller, old.logged_problem, None
            origin.mirrors.setdefault(mirror.relid, []).append(mirror.pgt_id)
        for old in self._origins.values():
            if old.poller is not None and (old.key not in origins or origins[old.key].poller is not old.poller):
                old.poller.close()
        for origin in origins.values():
            for known in (origin.known, origin.since):
                for relid in known.keys() - origin.mirrors.keys():
                    del known[relid]
        self._origins = origins
        mirrored = {i for origin in origins.values() for ids in origin.mirrors.values() for i in ids}
        self.changes_seen_at = {i: at for i, at in self.changes_seen_at.items() if i in mirrored}

    def poll(self, reader: str, settings: Settings, now: float) -> list[int]:
        """The mirrors whose sources have changes since the last poll. `reader`: our own key."""
        if not self._origins and not self._registered:
            return []
        interval = settings.scheduler_interval_ms / 1000
        self._read_counts(reader, settings, now)
        changed: list[int] = []
        for origin in self._origins.values():
            for relid, at in self._of(origin, interval, now):
                for pgt_id in origin.mirrors.get(relid, ()):
                    self.changes_seen_at[pgt_id] = max(at, self.changes_seen_at.get(pgt_id, 0.0))
                    changed.append(pgt_id)
        return changed

    def next_due_time(self, interval: float) -> float:
        """When a poll or a count is due before the next tick, in seconds since the epoch."""
        earliest = math.inf
        for origin in self._origins.values():
            earliest = min(earliest, origin.late)
            if origin.is_direct and origin.poller is not None:
                earliest = min(earliest, max(origin.begun + interval, origin.poller.next_at))
        return earliest

    # -- the broker
    # -------------------------------------------------------------------------------------------------------

    def _read_counts(self, reader: str, settings: Settings, now: float) -> None:
        interests: tuple[Interest, ...] = ()
        self._counts = {}
        self._uses_broker = settings.enable_refresh_broker and settings.adaptive_batch_coalescing
        if self._registry is None:
            return
        if self._uses_broker:
            ms = settings.scheduler_interval_ms
            interests = tuple(
                Interest(reader, origin.key, origin.server, origin.database, relid, ms, self._slot)
                for origin in self._origins.values()
                for relid in origin.mirrors
            )
        if interests != self._registered or now > self._retry_at:
            self._register(reader, interests, now)
        if self._uses_broker:
            self._counts = self._registry.answers(self._origins.keys())

    def _register(self, reader: str, interests: tuple[Interest, ...], now: float) -> None:
        assert self._registry is not None
        unfit = self._registry.register(reader, interests)
        if unfit is None:
            return  # retried in the next tick
        self._registered = interests
        self._retry_at = now + FULL_SECONDS if unfit else math.inf
        if unfit and not self._unfit:
            log.warning(
                "The broker registry is full; the remaining sources are polled directly",
                extra=event(BROKER_FULL, database=reader, sources=unfit, most=CAPACITY),
            )
        self._unfit = unfit

    # -- one origin
    # -------------------------------------------------------------------------------------------------------

    def _of(self, origin: _Origin, interval: float, now: float) -> list[tuple[int, float]]:
        """Sources with changes, each with the end of the poll that found them."""
        changed = [] if origin.poller is None else self._changes_polled(origin, origin.poller)
        missing = []
        late = math.inf
        for relid in origin.mirrors:
            count = self._counts.get((origin.key, relid))
            if count is None or not now - interval <= count.looked_at <= now + interval:
                missing.append(relid)
                late = min(late, -math.inf if count is None else count.looked_at + interval * (1 + GRACE))
                continue
            if origin.known.get(relid) != (count.generation, count.count):
                origin.known[relid] = count.generation, count.count
                changed.append((relid, count.done_at))
            if relid not in origin.since or origin.since[relid].xmin < count.xmin:
                origin.since[relid] = Cut(count.xmin, count.xmin, ())
        origin.late = late if late > now else math.inf
        origin.is_direct = late <= now
        if origin.is_direct and now >= origin.begun + interval * (1 - EARLY):
            self._poll(origin, missing, now)
        elif not missing and origin.poller is not None:
            origin.poller.problem = None  # the broker can poll it
        return changed

    def _poll(self, origin: _Origin, relids: Sequence[int], now: float) -> None:
        origin.begun = now
        if origin.poller is None:
            session = OriginSession(lambda: self._origin_dsn(origin), origin.key, self._sources, "look")
            origin.poller = OriginPoller(origin.name, session, self._ring)
        origin.poller.ask([(relid, origin.since.get(relid)) for relid in relids], now)

    def _changes_polled(self, origin: _Origin, poller: OriginPoller) -> list[tuple[int, float]]:
        changed = []
        for result in poller.take_result():
            changed += [(relid, result.ended) for relid in result.changed_sources()]
            for relid, _ in result.wanted:
                if relid in result.found.sources:
                    origin.since[relid] = result.found.cut
                else:
                    origin.since.pop(relid, None)
        if poller.take_replaced():
            changed += [(relid, time.monotonic()) for relid in origin.mirrors]
        if poller.problem != origin.logged_problem:
            fields = {"origin": origin.name, **({"detail": poller.problem} if poller.problem else {})}
            if poller.problem is None:
                log.info("Polling of another database works again", extra=event(ORIGIN_BACK, **fields))
            elif origin.logged_problem is None:
                log.warning("Polling of another database failed", extra=event(ORIGIN_LOST, **fields))
                origin.since.clear()  # when it answers again it may be a promoted standby: see Ledger.forget
            origin.logged_problem = poller.problem
        return changed

    def _origin_dsn(self, origin: _Origin) -> str:
        return origin_dsn(self._dsn, self._servers, origin.server, origin.database)

    def _ring(self) -> None:
        if self._wake_socket is not None:
            self._wake_socket.ring()

    # -- status
    # ---------------------------------------------------------------------------------------------

    def problems(self) -> list[dict[str, Any]]:
        """Origins that cannot be polled."""
        return [
            {"origin": origin.name, "problem": origin.logged_problem}
            for origin in self._origins.values()
            if origin.logged_problem is not None and origin.is_direct
        ]

    def broker_problem(self) -> str | None:
        if not self._uses_broker or not self._origins:
            return None
        if self._unfit:
            return f"its registry is full: {self._unfit} sources are polled directly"
        silent = sorted(origin.name for origin in self._origins.values() if origin.is_direct)
        return f"it does not count for {', '.join(silent)}: polled directly" if silent else None

    def ledger(self) -> list[dict[str, Any]]:
        """The broker's counts of our sources."""
        return [
            {
                "origin": count.origin,
                "source_oid": count.relid,
                "pending_rows": count.pending_rows,
                "max_lsn": lsn_text(count.max_lsn),
                "last_updated_tick": count.tick,
                "consumers": count.consumers,
                "scans_done": count.scans_done,
                "scans_saved": count.scans_saved,
            }
            for count in self._counts.values()
            if count.relid in self._origins[count.origin].mirrors
        ]
