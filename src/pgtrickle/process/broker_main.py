"""The broker process: a thread and a connection per origin, which poll once for all schedulers."""

from __future__ import annotations

import logging
import secrets
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgtrickle.broker.ledger import Ledger
from pgtrickle.db.discover import origin_dsn
from pgtrickle.errors import PgtrickleError
from pgtrickle.ipc.registry import Interest, Registry, SourceStatus
from pgtrickle.ipc.wake_socket import bell_path, ring
from pgtrickle.origin.poll_session import BACKOFF_SECONDS, STATEMENT_SECONDS, OriginSession
from pgtrickle.process.parent import end_with_parent, stop_on_signals
from pgtrickle.settings import Sources
from pgtrickle.telemetry import BROKER_ORIGIN_LOST, event, set_up_logging

log = logging.getLogger(__name__)

READ_SECONDS = 0.2  # between two reads of the registered sources
ALIVE_SECONDS = 1.0  # between two checks for processes that have ended
HANG_SECONDS = 2.0 * STATEMENT_SECONDS


@dataclass(frozen=True, slots=True)
class BrokerTask:
    """Arguments from the launcher."""

    directory: Path
    sources: Sources
    servers: tuple[str, ...]


def registry_path(directory: Path) -> Path:
    return directory / "registry"


def main(task: BrokerTask) -> None:
    settings = task.sources.load().settings
    set_up_logging(settings.log_level, settings.log_format)
    end_with_parent()
    stop = threading.Event()
    stop_on_signals(stop)
    Broker(task.directory, task.sources, task.servers, stop).run()
    sys.exit(0)


class StatusTable:
    """Writes the counts of all origins to the registry, and remembers the position of each. Used by all threads."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._positions: dict[tuple[str, int], int] = {}
        self._used = 0
        registry.write_answers({}, 0)  # deletes the counts of an earlier process

    def write(self, origin: str, statuses: Mapping[int, SourceStatus]) -> None:
        """Replaces all counts of the origin."""
        with self._lock:
            changes: dict[int, SourceStatus | None] = {}
            for key in [k for k in self._positions if k[0] == origin and k[1] not in statuses]:
                changes[self._positions.pop(key)] = None
            taken = set(self._positions.values())
            free = (p for p in range(len(taken) + len(statuses)) if p not in taken)
            for relid, status in statuses.items():
                if (origin, relid) not in self._positions:
                    self._positions[origin, relid] = next(free)
                changes[self._positions[origin, relid]] = status
            self._used = max(self._used, 1 + max(self._positions.values(), default=-1))
            self._registry.write_answers(changes, self._used)


@dataclass(frozen=True, slots=True)
class OriginInterests:
    """The registered sources of one origin, with their readers."""

    server: str
    database: str
    readers: Mapping[int, tuple[Interest, ...]]  # by source

    @property
    def tick(self) -> float:
        """The shortest interval of the readers."""
        return min(i.interval_ms for interests in self.readers.values() for i in interests) / 1000

    def shares(self) -> dict[int, float]:
        """How many polls of readers one poll of the broker replaces."""
        ms = self.tick * 1000
        return {relid: sum(ms / i.interval_ms for i in interests) for relid, interests in self.readers.items()}


class OriginThread:
    """Polls one origin once per tick, as long as a scheduler has registered a source of it."""

    def __init__(self, key: str, interests: OriginInterests, task: BrokerTask, statuses: StatusTable) -> None:
        self._key = key
        self._interests = interests
        self._task = task
        self._statuses = statuses
        self._session = OriginSession(self._dsn, key, task.sources, "broker")
        self._ledger = Ledger(lambda: secrets.randbits(62))
        self._wake = threading.Event()
        self._is_stopped = False
        self._polling_since: float | None = None
        self._tick = 0
        threading.Thread(target=self._run, name=f"origin {key}", daemon=True).start()

    def set_interests(self, interests: OriginInterests) -> None:
        before, self._interests = self._interests, interests
        if before.readers.keys() != interests.readers.keys() or before.tick != interests.tick:
            self._wake.set()

    def stop(self) -> None:
        self._is_stopped = True
        self._wake.set()

    def abort_if_hung(self) -> None:
        since = self._polling_since
        if since is not None and time.monotonic() - since > HANG_SECONDS:
            self._session.cut_off()

    def _dsn(self) -> str:
        interests = self._interests
        return origin_dsn(self._task.servers[0], self._task.servers, interests.server, interests.database)

    def _run(self) -> None:
        failures = 0
        while not self._is_stopped:
            interests, begun = self._interests, time.monotonic()
            pause = interests.tick
            self._polling_since = begun
            try:
                self._poll(interests)
                failures = 0
            except PgtrickleError as error:  # the readers get no new count, and poll the origin themselves
                if not failures:
                    fields = {"origin": f"{interests.server}/{interests.database}", "detail": error.one_line()}
                    log.warning("The broker cannot poll a database", extra=event(BROKER_ORIGIN_LOST, **fields))
                self._ledger.forget()
                pause = max(pause, BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
                failures += 1
            self._polling_since = None
            self._wake.wait(max(0.0, begun + pause - time.monotonic()))
            self._wake.clear()
        self._session.close()
        self._statuses.write(self._key, {})

    def _poll(self, interests: OriginInterests) -> None:
        self._ledger.set_sources(interests.readers)
        begun = time.time()
        scanned = self._session.scan(self._ledger.scan_ranges())
        done = time.monotonic()
        changed = self._ledger.note(scanned, interests.shares())
        self._tick += 1
        statuses = {
            relid: SourceStatus(
                origin=self._key,
                relid=relid,
                generation=entry.generation,
                count=entry.count,
                pending_rows=entry.pending,
                max_lsn=entry.max_lsn,
                xmin=scanned.cut.xmin,
                tick=self._tick,
                looked_at=begun,
                done_at=done,
                scans_done=entry.scans_done,
                scans_saved=int(entry.scans_saved),
                consumers=len({i.reader for i in interests.readers[relid]}),
            )
            for relid, entry in self._ledger.entries.items()
            if entry.since is not None
        }
        self._statuses.write(self._key, statuses)
        for slot in {i.slot for relid in changed for i in interests.readers[relid]}:
            ring(bell_path(self._task.directory, slot))


class Broker:
    """The main thread: runs one thread per origin with registered sources."""

    def __init__(self, directory: Path, sources: Sources, servers: Sequence[str], stop: threading.Event) -> None:
        self._task = BrokerTask(directory, sources, tuple(servers))
        self._registry = Registry(registry_path(directory))
        self._statuses = StatusTable(self._registry)
        self._stop = stop
        self._origins: dict[str, OriginThread] = {}

    def run(self) -> None:
        version, arranged_at = -1, -ALIVE_SECONDS
        while not self._stop.is_set():
            now = time.monotonic()
            if self._registry.version != version or now - arranged_at >= ALIVE_SECONDS:
                version, arranged_at = self._registry.version, now
                self._arrange(self._registry.interests())
            for origin in self._origins.values():
                origin.abort_if_hung()
            self._stop.wait(READ_SECONDS)

    def _arrange(self, interests: Sequence[Interest]) -> None:
        by_origin = _by_origin(interests)
        for key in [k for k in self._origins if k not in by_origin]:
            self._origins.pop(key).stop()
        for key, origin_interests in by_origin.items():
            if key in self._origins:
                self._origins[key].set_interests(origin_interests)
            else:
                self._origins[key] = OriginThread(key, origin_interests, self._task, self._statuses)


def _by_origin(interests: Sequence[Interest]) -> dict[str, OriginInterests]:
    readers: dict[str, dict[int, tuple[Interest, ...]]] = {}
    addresses: dict[str, tuple[str, str]] = {}
    for interest in interests:
        addresses.setdefault(interest.origin, (interest.server, interest.database))
        of_origin = readers.setdefault(interest.origin, {})
        of_origin[interest.relid] = (*of_origin.get(interest.relid, ()), interest)
    return {key: OriginInterests(*addresses[key], of_origin) for key, of_origin in readers.items()}
